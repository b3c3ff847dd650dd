#include "linerate/doc/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::doc {

double at_least_zero(const JsonReader& r) {
  const double value = r.number();
  if (!(value >= 0)) r.fail(fmt::format("expected at least 0, found {:g}", value));
  return value;
}

double one_or_more(const JsonReader& r) {
  const double value = r.number();
  if (!(value >= 1)) r.refuse("at least 1");
  return value;
}

double positive(const JsonReader& r) {
  const double value = r.number();
  if (!(value > 0)) r.fail(fmt::format("expected more than 0, found {:g}", value));
  return value;
}

double seconds(const JsonReader& r) {
  constexpr double kLongest = 1e9;
  const double value = r.number();
  if (!(value >= 0 && value <= kLongest))
    r.fail(fmt::format("expected 0 to {:g} seconds, found {:g}", kLongest, value));
  return value;
}

std::size_t index_in(const JsonReader& r, std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), r.string());
  if (found == names.end())
    r.fail(fmt::format("expected one of {}; found \"{}\"", fmt::join(names, ", "), r.string()));
  return to_index(found - names.begin());
}

JsonReader FieldChecker::reader_of(const Json& json) {
  static const std::string kNoPlace;
  return {json, kNoPlace};
}

JsonReader FieldChecker::nothing() {
  static const Json kNothing = Json::object();
  return reader_of(kNothing);
}

void OptionReader::fail(std::string_view key, const std::string& message) const {
  throw UsageError(fmt::format("strategy {}: {}: {}", component_.name, key, message));
}

void OptionReader::refuse(std::string_view key, const std::string& expected) const {
  const std::string* value = component_.find(key);
  fail(key, fmt::format("expected {}, found {}", expected, value ? *value : "nothing"));
}

const std::string* OptionReader::find(std::string_view key) {
  known_.emplace_back(key);
  return component_.find(key);
}

template <typename Parse>
auto OptionReader::parsed(std::string_view key, Parse parse) {
  const std::string* value = find(key);
  try {
    return value ? std::optional(parse(*value)) : std::nullopt;
  } catch (const UsageError& e) {
    fail(key, e.what());
  }
}

Bytes OptionReader::size(std::string_view key, Bytes otherwise) {
  return parsed(key, parse_size).value_or(otherwise);
}

Seconds OptionReader::time(std::string_view key, Seconds otherwise) {
  return time(key).value_or(otherwise);
}

std::optional<Seconds> OptionReader::time(std::string_view key) { return parsed(key, parse_time); }

std::optional<BytesPerSecond> OptionReader::rate(std::string_view key) {
  const auto rate = parsed(key, parse_rate);
  if (rate && !(rate->value > 0)) refuse(key, "a rate above 0");
  return rate;
}

std::int64_t OptionReader::integer(std::string_view key, std::int64_t otherwise) {
  return parsed(key, parse_integer).value_or(otherwise);
}

// "0.25" or "1/4".
std::optional<double> OptionReader::number(std::string_view key) {
  return parsed(key, [](const std::string& text) {
    const std::size_t bar = text.find('/');
    if (bar == std::string::npos) return parse_number(text);
    const double over = parse_number(std::string_view(text).substr(0, bar));
    const double under = parse_number(std::string_view(text).substr(bar + 1));
    if (under == 0) throw UsageError(fmt::format("expected a number, found \"{}\"", text));
    return over / under;
  });
}

std::string OptionReader::text(std::string_view key, const std::string& otherwise) {
  const std::string* value = find(key);
  return value ? *value : otherwise;
}

std::size_t OptionReader::choice(std::string_view key, const std::vector<std::string>& words,
                                 std::size_t otherwise) {
  const std::string* value = find(key);
  if (!value) return otherwise;
  const auto found = std::find(words.begin(), words.end(), *value);
  if (found == words.end())
    fail(key, fmt::format("expected one of {}, found \"{}\"", join(words, ", "), *value));
  return to_index(found - words.begin());
}

std::optional<DType> OptionReader::wire(std::string_view key) {
  static const std::vector<std::string> words = {"fp32", "fp16", "bf16", "f32", "f16"};
  static constexpr DType types[] = {DType::f32, DType::f16, DType::bf16, DType::f32, DType::f16};
  if (!find(key)) return std::nullopt;
  return types[choice(key, words)];
}

// Every getter adds its key to the known ones, so whatever option is left was asked for by nobody.
void OptionReader::finish() const {
  const std::set<std::string> sorted(known_.begin(), known_.end());
  const std::vector<std::string> known(sorted.begin(), sorted.end());
  for (const auto& [key, value] : component_.options) {
    if (sorted.contains(key)) continue;
    const std::string near = nearest(key, known);
    const std::string said =
        key.empty() ? fmt::format("expected option=value, found \"{}\";", value)
                    : fmt::format("unknown option \"{}\"{}", key,
                                  near.empty() ? ";" : "; did you mean \"" + near + "\"?");
    throw UsageError(fmt::format("strategy {}: {} Known: {}", component_.name, said,
                                 known.empty() ? "none" : join(known, ", ")));
  }
}

}  // namespace linerate::doc
