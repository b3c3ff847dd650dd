// Reading and writing documents as JSON, with errors that name file, path, expected and found.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/error.hpp"

namespace linerate::doc {

using Json = nlohmann::ordered_json;

/// What a reader has asked a document for: the keys of an object, and what lists hold, all items
/// of a list together.
struct AskedKeys {
  std::map<std::string, AskedKeys, std::less<>> keys;
  std::unique_ptr<AskedKeys> items;
};

/// A JSON value together with the place it stands at ("cluster.json: /links/0").
class JsonReader {
 public:
  /// `asked` outlives the reader and what it returns; null: nobody wants to know.
  JsonReader(const Json& value, std::string place, std::string path = "",
             AskedKeys* asked = nullptr)
      : value_(&value), place_(std::move(place)), path_(std::move(path)), asked_(asked) {}

  [[noreturn]] void fail(const std::string& message) const;
  /// Says what was expected in place of the value, and what was found.
  [[noreturn]] void refuse(const std::string& expected) const;

  bool has(std::string_view key) const;
  /// Throws when the key is absent; names the nearest key that is there.
  JsonReader at(std::string_view key) const;
  std::vector<JsonReader> items() const;

  double number() const;
  std::int64_t integer() const;
  bool boolean() const;
  std::string string() const;

  /// The text as a value: parse(text), whose UsageError becomes an InputError naming this place.
  template <typename Parse>
  auto parsed(Parse parse) const {
    try {
      return parse(string());
    } catch (const UsageError& e) {
      fail(e.what());
    }
  }

  double number(std::string_view key) const { return at(key).number(); }
  std::int64_t integer(std::string_view key) const { return at(key).integer(); }
  std::string string(std::string_view key) const { return at(key).string(); }
  std::optional<double> optional_number(std::string_view key) const;
  double number_or(std::string_view key, double otherwise) const;
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise) const;
  std::string string_or(std::string_view key, const std::string& otherwise) const;

  /// 0 to 1e9 s (30 years): a time that is negative or longer is a wrong unit, not a duration.
  double seconds(std::string_view key) const;
  double seconds_or(std::string_view key, double otherwise) const;
  std::optional<double> optional_seconds(std::string_view key) const;
  /// A finite number that is at least 0 (more than 0).
  double at_least_zero(std::string_view key) const;
  double positive(std::string_view key) const;
  /// A whole number of [low, high].
  std::int64_t integer_in(std::string_view key, std::int64_t low, std::int64_t high) const;

  const Json& value() const { return *value_; }
  /// It is written for people, and follows from the rest.
  void leave(std::string_view key) const { has(key); }
  /// Throws where an object that was asked for keys has one that nobody asked for: misspelt, it
  /// would be ignored. "comment" and keys that begin with "_" are
  /// for people.
  void require_known_keys() const;

  double seconds() const;
  std::int64_t integer_in(std::int64_t low, std::int64_t high) const;

 private:
  const Json* value_;
  std::string place_;
  std::string path_;
  AskedKeys* asked_ = nullptr;
};

/// Parses text; a syntax error becomes an InputError naming line and column.
Json parse_json(const std::string& text, const std::string& place);
/// Checks {"document": kind, "schema": schema}. Throws InputError saying what the file is instead;
/// `older` says why an older schema is not read.
void expect_document(const JsonReader& reader, std::string_view kind, int schema = 1,
                     std::string_view older = "");
/// read(JsonReader) of a document of this kind: what every X_from_json begins with. Throws for keys
/// that `read` never asks for.
template <typename Read>
auto read_document(const std::string& text, const std::string& place, std::string_view kind,
                   Read read, int schema = 1, std::string_view older = "") {
  const Json json = parse_json(text, place);
  AskedKeys asked;
  const JsonReader reader(json, place, "", &asked);
  expect_document(reader, kind, schema, older);
  auto document = read(reader);
  reader.require_known_keys();
  return document;
}
Json new_document(std::string_view kind, int schema = 1);
/// null for an absent value.
Json json_of(const std::optional<double>& value);

}  // namespace linerate::doc
