// Reading and writing documents as JSON, with errors that name file, path, expected and found.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/error.hpp"

namespace linerate::doc {

using Json = nlohmann::ordered_json;

/// A JSON value of a document that knows its place in it ("cluster.json: /links/0"). A view:
/// document and place outlive it.
class JsonReader {
 public:
  JsonReader(const Json& document, const std::string& place)
      : value_(&document), document_(&document), place_(&place) {}
  JsonReader(const Json& document, std::string&& place) = delete;

  [[noreturn]] void fail(const std::string& message) const;
  /// Says what was expected in place of the value, and what was found.
  [[noreturn]] void refuse(const std::string& expected) const;

  /// Whether the key is there and not null.
  bool has(std::string_view key) const;
  /// Throws when the key is absent; names the nearest key that is there.
  JsonReader at(std::string_view key) const;
  /// For a list.
  std::size_t size() const { return list().size(); }
  JsonReader item(std::size_t index) const { return below(list()[index]); }
  /// A member of an item of a list that the object has.
  JsonReader at(std::string_view key, std::size_t index, std::string_view member) const {
    return at(key).item(index).at(member);
  }
  std::vector<JsonReader> items() const;

  bool is_null() const { return value_->is_null(); }
  double number() const;
  std::int64_t integer() const;
  /// A whole number of [low, high].
  std::int64_t integer_in(std::int64_t low, std::int64_t high) const;
  bool boolean() const;
  const std::string& string() const;

  /// The text as a value: parse(text), whose UsageError becomes an InputError naming this place.
  template <typename Parse>
  auto parsed(Parse parse) const {
    try {
      return parse(string());
    } catch (const UsageError& e) {
      fail(e.what());
    }
  }

  /// Throws for a key of an object that is not in `known`: misspelt, it would be ignored. "comment"
  /// and keys that begin with "_" are for people.
  void require_known_keys(std::span<const std::string_view> known) const;

  const Json& value() const { return *value_; }

 private:
  const Json::array_t& list() const;
  const Json* find(std::string_view key) const;
  JsonReader below(const Json& value) const;

  const Json* value_;
  const Json* document_;
  const std::string* place_;
};

/// Parses text; a syntax error becomes an InputError naming line and column.
Json parse_json(const std::string& text, const std::string& place);
/// What a document says about itself.
struct DocumentKind {
  std::string_view name;
  int schema = 1;                                     // as it is written
  int oldest = 1;                                     // that is read
  std::string_view older = "no linerate wrote that";  // of one before that
};
/// Checks {"document": name, "schema": oldest to schema}. Throws InputError saying what the file is
/// instead. docs/python.md has the policy.
void expect_document(const JsonReader& reader, const DocumentKind& kind);
Json new_document(const DocumentKind& kind);
/// null for an absent value.
Json json_of(const std::optional<double>& value);

}  // namespace linerate::doc
