#include "linerate/doc/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/printable.hpp"
#include "linerate/core/text.hpp"

namespace linerate::doc {
namespace {

constexpr double kLongestTime = 1e9;
constexpr double kLargestNumber = 1e30;  // no product of two of them overflows

std::string kind_of(const Json& value) {
  if (value.is_null()) return "null";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return std::string(value.type_name()) + " " + text;
}

}  // namespace

void JsonReader::fail(const std::string& message) const {
  throw InputError(place_, (path_.empty() ? "/" : path_) + ": " + message);
}

void JsonReader::refuse(const std::string& expected) const {
  fail(fmt::format("expected {}, found {}", expected, kind_of(*value_)));
}

bool JsonReader::has(std::string_view key) const {
  if (asked_) asked_->keys.try_emplace(std::string(key));
  // Where every key is optional, something else in its place would be ignored.
  if (!value_->is_object() && !path_.empty()) refuse("an object");
  return value_->is_object() && value_->contains(key) && !value_->at(std::string(key)).is_null();
}

JsonReader JsonReader::at(std::string_view key) const {
  if (!value_->is_object()) refuse(fmt::format("an object with key \"{}\"", key));
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) {
    std::vector<std::string> keys;
    for (const auto& item : value_->items()) keys.push_back(item.key());
    const std::string near = nearest(key, keys);
    fail(fmt::format("expected key \"{}\", found {}", key,
                     near.empty() ? "keys: " + join(keys, ", ") : "\"" + near + "\""));
  }
  AskedKeys* const below =
      asked_ ? &asked_->keys.try_emplace(std::string(key)).first->second : nullptr;
  return JsonReader(*found, place_, fmt::format("{}/{}", path_, key), below);
}

void JsonReader::require_known_keys() const {
  if (!asked_) return;
  if (value_->is_array() && asked_->items)
    for (const JsonReader& item : items()) item.require_known_keys();
  if (!value_->is_object() || asked_->keys.empty()) return;  // or taken as it is
  for (const auto& [key, value] : value_->items()) {
    const auto known = asked_->keys.find(key);
    if (known != asked_->keys.end()) {
      JsonReader(value, place_, fmt::format("{}/{}", path_, key), &known->second)
          .require_known_keys();
    } else if (!key.starts_with('_') && key != "comment") {
      std::vector<std::string> keys;
      for (const auto& [name, below] : asked_->keys) keys.push_back(name);
      const std::string near = nearest(key, keys);
      fail(fmt::format("unknown key \"{}\"; {}", key,
                       near.empty() ? "expected one of: " + join(keys, ", ")
                                    : "did you mean \"" + near + "\"?"));
    }
  }
}

std::vector<JsonReader> JsonReader::items() const {
  if (!value_->is_array()) refuse("a list");
  if (asked_ && !asked_->items) asked_->items = std::make_unique<AskedKeys>();
  std::vector<JsonReader> all;
  all.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    all.emplace_back((*value_)[i], place_, fmt::format("{}/{}", path_, i),
                     asked_ ? asked_->items.get() : nullptr);
  return all;
}

double JsonReader::number() const {
  if (!value_->is_number()) refuse("a number");
  const double value = value_->get<double>();
  if (!(std::abs(value) <= kLargestNumber))
    fail(fmt::format("expected a number of at most {:g}, found {:g}", kLargestNumber, value));
  return value;
}

std::int64_t JsonReader::integer() const {
  if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX)
    refuse("a whole number below 2^63");
  if (value_->is_number_integer()) return value_->get<std::int64_t>();
  if (value_->is_number_float()) {  // 1e6 is a whole number too
    const double number = value_->get<double>();
    if (std::nearbyint(number) == number && std::abs(number) < 9e15)
      return static_cast<std::int64_t>(number);
  }
  refuse("a whole number");
}

bool JsonReader::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::string JsonReader::string() const {
  if (!value_->is_string()) refuse("a text");
  return value_->get<std::string>();
}

std::optional<double> JsonReader::optional_number(std::string_view key) const {
  return has(key) ? std::optional(number(key)) : std::nullopt;
}
double JsonReader::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}
std::int64_t JsonReader::integer_or(std::string_view key, std::int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}
std::string JsonReader::string_or(std::string_view key, const std::string& otherwise) const {
  return has(key) ? string(key) : otherwise;
}

double JsonReader::seconds() const {
  const double value = number();
  if (!(value >= 0 && value <= kLongestTime))
    fail(fmt::format("expected 0 to {:g} seconds, found {:g}", kLongestTime, value));
  return value;
}
double JsonReader::seconds(std::string_view key) const { return at(key).seconds(); }
double JsonReader::seconds_or(std::string_view key, double otherwise) const {
  return has(key) ? seconds(key) : otherwise;
}
std::optional<double> JsonReader::optional_seconds(std::string_view key) const {
  return has(key) ? std::optional(seconds(key)) : std::nullopt;
}

double JsonReader::at_least_zero(std::string_view key) const {
  const double value = number(key);
  if (!(value >= 0)) at(key).fail(fmt::format("expected at least 0, found {:g}", value));
  return value;
}
double JsonReader::positive(std::string_view key) const {
  const double value = number(key);
  if (!(value > 0)) at(key).fail(fmt::format("expected more than 0, found {:g}", value));
  return value;
}

std::int64_t JsonReader::integer_in(std::int64_t low, std::int64_t high) const {
  const std::int64_t value = integer();
  if (value < low || value > high)
    fail(fmt::format("expected {} to {}, found {}", low, high, value));
  return value;
}
std::int64_t JsonReader::integer_in(std::string_view key, std::int64_t low,
                                    std::int64_t high) const {
  return at(key).integer_in(low, high);
}

namespace {

/// A file that is no text has no line and column to name.
void expect_text(const std::string& text, const std::string& place) {
  constexpr std::size_t kHead = 16;
  if (text.starts_with("\x1f\x8b"))
    throw InputError(place,
                     "expected JSON, found gzip-compressed data; unpack it with gunzip, or, if it "
                     "is a recorded trace, make a document of it with linerate import");
  if (text.find('\0') < kHead)
    throw InputError(place, "expected JSON, found data that are no text");
}

}  // namespace

Json parse_json(const std::string& text, const std::string& place) {
  expect_text(text, place);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    const std::size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const std::size_t line_start = text.rfind('\n', at == 0 ? 0 : at - 1);
    const std::size_t column = line_start == std::string::npos ? at + 1 : at - line_start;
    if (at >= text.size())
      throw InputError(fmt::format("{}:{}:{}", place, line, column),
                       "expected more JSON, found the end of the file; it is empty or was cut off");
    throw InputError(
        fmt::format("{}:{}:{}", place, line, column),
        fmt::format("expected JSON, found \"{}\"", printable(trim(text.substr(at, 20)))));
  } catch (const Json::out_of_range& e) {  // 1e400
    throw InputError(place,
                     fmt::format("expected numbers below 1e308; the parser says: {}", e.what()));
  }
}

void expect_document(const JsonReader& reader, std::string_view kind, int schema,
                     std::string_view older) {
  if (!reader.value().is_object() || !reader.has("document"))
    reader.fail(fmt::format("expected a linerate {} ({{\"document\": \"{}\", ...}}), found {}",
                            kind, kind, kind_of(reader.value())));
  if (const std::string found = reader.string("document"); found != kind)
    reader.fail(fmt::format("expected a linerate {}, found a {}", kind, found));
  const std::int64_t found = reader.integer("schema");
  if (found == schema) return;
  reader.fail(fmt::format("expected schema {}, found {}; {}", schema, found,
                          found > schema ? "this linerate is older than the file" : older));
}

Json new_document(std::string_view kind, int schema) {
  Json json;
  json["document"] = kind;
  json["schema"] = schema;
  return json;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace linerate::doc
