// JSON with errors that name their place. A reader is three pointers: the value, its document and
// the document's name. The path of a value is searched only when an error is thrown, by walking the
// document until that very value is found. So reading costs nothing for paths.
#include "linerate/doc/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"

namespace linerate::doc {
namespace {

constexpr double kLargestNumber = 1e30;  // no product of two of them overflows

// "number 3.5": the kind of a value and its text, shortened for messages.
std::string kind_of(const Json& value) {
  if (value.is_null()) return "null";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return std::string(value.type_name()) + " " + text;
}

/// The path of a value in its document, "/links/0/latency". It is searched only after an error, so
/// that readers need not carry it. No document nests as deep as `deepest`; deeper values were never
/// read.
std::optional<std::string> path_to(const Json& wanted, const Json& from, int deepest = 32) {
  if (&wanted == &from) return "";
  if (deepest == 0 || !from.is_structured()) return std::nullopt;
  for (const auto& item : from.items())
    if (const auto below = path_to(wanted, item.value(), deepest - 1))
      return "/" + item.key() + *below;
  return std::nullopt;
}

/// A binary file has no line and column to name.
void expect_text(const std::string& text, const std::string& place) {
  constexpr std::size_t kHead = 16;
  if (text.starts_with("\x1f\x8b"))
    throw InputError(place,
                     "expected JSON, found gzip-compressed data; unpack it with gunzip, or turn a "
                     "recorded trace into a document with linerate import");
  if (text.find('\0') < kHead)
    throw InputError(place, "expected JSON, found data that is not text");
}

/// Called by the parser with each key and value. Throws InputError if an object has a key twice,
/// because a Json keeps only the last of two equal keys. `around_` has the objects and lists around
/// the present value, each with its keys or items so far; they give the path in the error.
class KeysOnce {
 public:
  explicit KeysOnce(const std::string& place) : place_(place) {}

  void see(Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      around_.push_back({.is_list = event == Event::array_start});
    } else if (event == Event::key) {
      around_.back().last = parsed.get_ref<const std::string&>();
      if (!around_.back().keys.insert(around_.back().last).second) refuse();
    } else {
      if (event != Event::value) around_.pop_back();
      if (!around_.empty()) ++around_.back().items;
    }
  }

 private:
  /// An object or a list around the present value.
  struct Around {
    bool is_list;
    std::size_t items = 0;
    std::set<std::string> keys = {};
    std::string last = {};  // key
  };

  [[noreturn]] void refuse() const {
    std::string path;
    for (std::size_t i = 0; i + 1 < around_.size(); ++i)
      path += "/" + (around_[i].is_list ? std::to_string(around_[i].items) : around_[i].last);
    throw InputError(place_,
                     fmt::format("{}: expected each key once, found \"{}\" twice; leave one "
                                 "out",
                                 path.empty() ? "/" : path, around_.back().last));
  }

  const std::string& place_;
  std::vector<Around> around_;
};

}  // namespace

void JsonReader::fail(const std::string& message) const {
  const std::string path = path_to(*value_, *document_).value_or("");
  throw InputError(*place_, path.empty() ? message : path + ": " + message);
}

void JsonReader::refuse(const std::string& expected) const {
  fail(fmt::format("expected {}, found {}", expected, kind_of(*value_)));
}

JsonReader JsonReader::below(const Json& value) const {
  JsonReader reader = *this;
  reader.value_ = &value;
  return reader;
}

// Objects have few keys, so they are searched in turn.
const Json* JsonReader::find(std::string_view key) const {
  const auto* object = value_->get_ptr<const Json::object_t*>();
  if (!object) return nullptr;
  for (const auto& [name, value] : *object)
    if (name == key) return &value;
  return nullptr;
}

// null counts as absent: writers of other languages write it for what they do not know.
bool JsonReader::has(std::string_view key) const {
  // If every key is optional, something else in place of the object would be ignored.
  if (!value_->is_object() && value_ != document_) refuse("an object");
  const Json* found = find(key);
  return found && !found->is_null();
}

// Names the key that was probably meant, such as "ready" in place of "ready_s", or all keys.
JsonReader JsonReader::at(std::string_view key) const {
  if (!value_->is_object()) refuse(fmt::format("an object with key \"{}\"", key));
  if (const Json* found = find(key)) return below(*found);
  std::vector<std::string> keys;
  for (const auto& item : value_->items()) keys.push_back(item.key());
  const std::string near = nearest(key, keys);
  fail(fmt::format("expected key \"{}\", found {}", key,
                   near.empty() ? "keys: " + join(keys, ", ") : "\"" + near + "\""));
}

// A mistyped optional key would be ignored without a word. Keys that begin with "_" and "comment"
// are people's own.
void JsonReader::require_known_keys(std::span<const std::string_view> known) const {
  for (const auto& [key, value] : value_->get_ref<const Json::object_t&>()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (key.starts_with('_') || key == "comment") continue;
    std::vector<std::string> keys(known.begin(), known.end());
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    const std::string near = nearest(key, keys);
    fail(fmt::format(
        "unknown key \"{}\"; {}", key,
        near.empty() ? "expected one of: " + join(keys, ", ") : "did you mean \"" + near + "\"?"));
  }
}

const Json::array_t& JsonReader::list() const {
  if (!value_->is_array()) refuse("a list");
  return value_->get_ref<const Json::array_t&>();
}

std::vector<JsonReader> JsonReader::items() const {
  std::vector<JsonReader> all;
  all.reserve(size());
  for (const Json& value : list()) all.push_back(below(value));
  return all;
}

// NaN fails the comparison too.
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

std::int64_t JsonReader::integer_in(std::int64_t low, std::int64_t high) const {
  const std::int64_t value = integer();
  if (value < low || value > high)
    fail(fmt::format("expected {} to {}, found {}", low, high, value));
  return value;
}

bool JsonReader::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

const std::string& JsonReader::string() const {
  if (!value_->is_string()) refuse("a text");
  return value_->get_ref<const std::string&>();
}

// Names line and column of a syntax error.
Json parse_json(const std::string& text, const std::string& place) {
  expect_text(text, place);
  try {
    KeysOnce keys(place);
    return Json::parse(text, [&keys](int, Json::parse_event_t event, const Json& parsed) {
      keys.see(event, parsed);
      return true;
    });
  } catch (const Json::parse_error& e) {
    const std::size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const std::size_t line_start = text.rfind('\n', at == 0 ? 0 : at - 1);
    const std::size_t column = line_start == std::string::npos ? at + 1 : at - line_start;
    if (at >= text.size())
      throw InputError(
          fmt::format("{}:{}:{}", place, line, column),
          "expected more JSON, found the end of the file, which is empty or was cut off");
    throw InputError(
        fmt::format("{}:{}:{}", place, line, column),
        fmt::format("expected JSON, found \"{}\"", printable(trim(text.substr(at, 20)))));
  } catch (const Json::out_of_range& e) {  // 1e400
    throw InputError(place,
                     fmt::format("expected numbers below 1e308; the parser says: {}", e.what()));
  }
}

void expect_document(const JsonReader& reader, const DocumentKind& kind) {
  if (!reader.value().is_object() || !reader.has("document"))
    reader.fail(fmt::format("expected a linerate {} ({{\"document\": \"{}\", ...}}), found {}",
                            kind.name, kind.name, kind_of(reader.value())));
  if (const std::string& found = reader.at("document").string(); found != kind.name)
    reader.fail(fmt::format("expected a linerate {}, found a {}", kind.name, found));
  const std::int64_t found = reader.at("schema").integer();
  if (found >= kind.oldest && found <= kind.schema) return;
  const std::string expected = kind.oldest < kind.schema
                                   ? fmt::format("schema {} to {}", kind.oldest, kind.schema)
                                   : fmt::format("schema {}", kind.schema);
  reader.fail(fmt::format("expected a {} of {}, found {}; {}", kind.name, expected, found,
                          found > kind.schema
                              ? "this linerate is older than the file; read it with a newer one"
                              : kind.older));
}

// The first two keys of every document.
Json new_document(const DocumentKind& kind) {
  Json json;
  json["document"] = kind.name;
  json["schema"] = kind.schema;
  return json;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace linerate::doc
