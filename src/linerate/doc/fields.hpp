// One list of fields a struct. Its JSON is read and written by this list. By the same list a struct
// that a program made is held to the rules of its reader:
//
//   void fields(auto& v, Is<CostSample> auto& s) {
//     v.required("bytes", s.bytes, positive);
//     v.optional("low_s", s.low_s, seconds);
//   }
//
// Keys are written in this order. The argument after the member says what its value must be, see
// read_as. The function stands in the struct's namespace for lookup.
//
// Three visitors call fields():
// - FieldReader takes the members from JSON and refuses wrong values, naming their place.
// - FieldWriter makes JSON of the members.
// - FieldChecker looks at the members as they are and makes no JSON. If it refuses one,
//   validate_document() writes the struct and reads it back, only to name the place. So a rule is
//   written once, and a document that a program hands over is held to it as a file is.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::doc {

/// T, or const T if it is written.
template <typename X, typename T>
concept Is = std::same_as<std::remove_const_t<X>, T>;

/// What a number must be: a finite one, if nothing is said.
using NumberCheck = double (*)(const JsonReader&);
double at_least_zero(const JsonReader&);
double positive(const JsonReader&);
double one_or_more(const JsonReader&);
/// 0 to 1e9 s (30 years). A negative or longer time is a wrong unit, not a duration.
double seconds(const JsonReader&);
/// The index of the text among `names`.
std::size_t index_in(const JsonReader&, std::span<const std::string_view> names);

/// Whole numbers of [low, high]. They have no default: too large a number would be cut to the
/// member's type unseen.
struct Range {
  std::int64_t low, high;
  std::int64_t read(const JsonReader& r) const { return r.integer_in(low, high); }
};

template <typename T>
void read_value(const JsonReader& r, T& x, const auto&... how);
template <typename T>
Json written_value(const T& x, const auto&... how);

/// The fields of an object, read into a struct. Throws InputError.
class FieldReader {
 public:
  explicit FieldReader(const JsonReader& object) : object_(object) { known_.reserve(16); }

  /// A std::optional may be null, everything else has a value.
  void required(std::string_view key, auto& x, const auto&... how) {
    ignored(key);
    read_value(object_.at(key), x, how...);
  }
  /// Absent or null: the member stays as it is. It is written all the same.
  void optional(std::string_view key, auto& x, const auto&... how) {
    if (has(key)) read_value(object_.at(key), x, how...);
  }
  /// Optional, and left out if `written` is false.
  void written_if(bool /*written*/, std::string_view key, auto& x, const auto&... how) {
    optional(key, x, how...);
  }
  /// Absent or null: `otherwise`.
  template <typename T>
  void defaulted(std::string_view key, T& x, const auto& otherwise, const auto&... how) {
    x = static_cast<T>(otherwise);
    optional(key, x, how...);
  }
  /// Written as make(); it follows from the rest.
  void derived(std::string_view key, const auto& /*make*/) { ignored(key); }
  void ignored(std::string_view key) { known_.push_back(key); }

  /// In the JSON that is read, with a value.
  bool has(std::string_view key) {
    ignored(key);
    return object_.has(key);
  }
  /// The size of a list that may come later.
  std::size_t size_of(std::string_view key, const auto& /*list*/) const {
    return object_.at(key).size();
  }
  /// check(reader of the object, arguments...) for conditions on several fields. It looks at the
  /// struct alone; the reader says in errors what is wrong and where.
  void hold(const auto& check, const auto&... arguments) const { check(object_, arguments...); }
  /// take(reader of the object, arguments...) when JSON is read, for conditions on the JSON itself
  /// or to complete the struct.
  void on_read(const auto& take, auto&... arguments) const { take(object_, arguments...); }

  void require_known_keys() const { object_.require_known_keys(known_); }

 private:
  JsonReader object_;
  std::vector<std::string_view> known_;
};

/// A visitor of a struct that is there already: it takes every member, and reads no JSON.
template <typename Visitor>
class MemberVisitor {
 public:
  void optional(std::string_view key, const auto& x, const auto&... how) {
    static_cast<Visitor&>(*this).required(key, x, how...);
  }
  void written_if(bool written, std::string_view key, const auto& x, const auto&... how) {
    if (written) optional(key, x, how...);
  }
  void defaulted(std::string_view key, const auto& x, const auto& /*otherwise*/,
                 const auto&... how) {
    optional(key, x, how...);
  }
  bool has(std::string_view /*key*/) const { return false; }
  std::size_t size_of(std::string_view /*key*/, const auto& list) const { return list.size(); }
  void on_read(const auto& /*take*/, const auto&... /*arguments*/) const {}
};

/// The fields of a struct, written into an object.
class FieldWriter : public MemberVisitor<FieldWriter> {
 public:
  explicit FieldWriter(Json& object) : object_(object) {}

  void required(std::string_view key, const auto& x, const auto&... how) {
    object_.emplace(key, written_value(x, how...));
  }
  void derived(std::string_view key, const auto& make) { required(key, make()); }
  void hold(const auto& /*check*/, const auto&... /*arguments*/) const {}

 private:
  Json& object_;
};

/// Holds the fields of a struct to what the reader of their JSON asks. Throws InputError without a
/// place, which validate_document() finds. Lists and objects become no JSON, so it is fast.
class FieldChecker : public MemberVisitor<FieldChecker> {
 public:
  void required(std::string_view key, const auto& x, const auto&... how);
  void derived(std::string_view /*key*/, const auto& /*make*/) const {}
  void hold(const auto& check, const auto&... arguments) const { check(nothing(), arguments...); }

  /// A reader of `json` as a document of no place.
  static JsonReader reader_of(const Json& json);

 private:
  static JsonReader nothing();
};

template <typename T>
void read_fields(const JsonReader& r, T& x, const auto& visit) {
  FieldReader v(r);
  visit(v, x);
  v.require_known_keys();
}
inline constexpr auto kItsFields = [](auto& v, auto& x) { fields(v, x); };

// A value whose type does not say how it is read and written has one of these after the member:
// - a check of numbers: positive
// - a codec, with read(JsonReader) and, if the value is not written as it is, write(value)
// - the names of an enum
// - a parser of text, the inverse of name_of or to_text
// - a list of fields
inline void read_as(const JsonReader& r, double& x, NumberCheck check) { x = check(r); }
template <typename T, typename Codec>
requires requires(const Codec& codec, const JsonReader& r) { codec.read(r); }
void read_as(const JsonReader& r, T& x, const Codec& codec) { x = static_cast<T>(codec.read(r)); }
template <typename T, std::size_t N>
void read_as(const JsonReader& r, T& x, const std::array<std::string_view, N>& names) {
  x = static_cast<T>(index_in(r, names));
}
template <typename T>
void read_as(const JsonReader& r, T& x, T (*parse)(std::string_view)) {
  x = r.parsed(parse);
}
template <typename T, std::invocable<FieldReader&, T&> Visit>
void read_as(const JsonReader& r, T& x, const Visit& visit) {
  read_fields(r, x, visit);
}
inline void read_as(const JsonReader& r, double& x) { x = r.number(); }
inline void read_as(const JsonReader& r, bool& x) { x = r.boolean(); }
inline void read_as(const JsonReader& r, std::string& x) { x = r.string(); }
template <typename T>
requires std::is_class_v<T>
void read_as(const JsonReader& r, T& x) { read_fields(r, x, kItsFields); }

Json written_fields(const auto& x, const auto& visit) {
  Json json = Json::object();
  FieldWriter v(json);
  visit(v, x);
  return json;
}

template <typename T>
Json written_as(const T& x) {
  if constexpr (requires(FieldWriter & v) { fields(v, x); })
    return written_fields(x, kItsFields);
  else
    return x;
}
template <typename T, typename How>
Json written_as(const T& x, const How& how) {
  if constexpr (requires { how.write(x); })
    return how.write(x);
  else if constexpr (std::invocable<const How&, FieldWriter&, const T&>)
    return written_fields(x, how);
  else if constexpr (requires { how.size(); })
    return to_index(x) < how.size() ? Json(how[to_index(x)]) : Json(to_index(x));
  else if constexpr (requires { name_of(x); })
    return name_of(x);
  else if constexpr (requires { to_text(x); })
    return to_text(x);
  else
    return x;
}

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
inline constexpr bool is_vector = false;
template <typename T>
inline constexpr bool is_vector<std::vector<T>> = true;

template <typename T>
void read_value(const JsonReader& r, T& x, const auto&... how) {
  if constexpr (is_optional<T>) {
    x.reset();
    if (!r.is_null()) read_value(r, x.emplace(), how...);
  } else if constexpr (is_vector<T>) {
    x.clear();
    x.reserve(r.size());
    for (std::size_t i = 0; i < r.size(); ++i) {
      typename T::value_type item{};
      read_value(r.item(i), item, how...);
      x.push_back(std::move(item));
    }
  } else {
    read_as(r, x, how...);
  }
}

template <typename T>
Json written_value(const T& x, const auto&... how) {
  if constexpr (is_optional<T>) {
    return x ? written_value(*x, how...) : Json(nullptr);
  } else if constexpr (is_vector<T>) {
    Json::array_t list;
    list.reserve(x.size());
    for (const auto& item : x) list.push_back(written_value(item, how...));
    return list;
  } else {
    return written_as(x, how...);
  }
}

template <typename T>
void check_as(FieldChecker& v, const T& x) {
  if constexpr (requires { fields(v, x); })
    fields(v, x);
  else if constexpr (std::same_as<T, double>)
    static_cast<void>(FieldChecker::reader_of(x).number());
}
/// `how` checks the value itself, or it reads what it would write. Enums are trusted to be of their
/// enumerators, except where a list of names ends before them.
template <typename T, typename How>
void check_as(FieldChecker& v, const T& x, const How& how) {
  if constexpr (std::invocable<const How&, FieldChecker&, const T&>) {
    how(v, x);
  } else if constexpr (requires { how.check(v, x); }) {
    how.check(v, x);
  } else if constexpr (requires { how.size(); }) {
    if (to_index(x) >= how.size()) FieldChecker::reader_of(nullptr).refuse("one of the names");
  } else if constexpr (!std::is_enum_v<T>) {
    const Json json = written_as(x, how);
    T copy{};
    read_as(FieldChecker::reader_of(json), copy, how);
  }
}
void check_value(FieldChecker& v, const auto& x, const auto&... how) {
  using T = std::remove_cvref_t<decltype(x)>;
  if constexpr (is_optional<T>) {
    if (x) check_value(v, *x, how...);
  } else if constexpr (is_vector<T>) {
    for (const auto& item : x) check_value(v, item, how...);
  } else {
    check_as(v, x, how...);
  }
}
void FieldChecker::required(std::string_view /*key*/, const auto& x, const auto&... how) {
  check_value(*this, x, how...);
}

/// The struct of a document whose head was looked at.
template <typename T>
T read_body(const JsonReader& document) {
  T x;
  read_fields(document, x, [](FieldReader& v, T& body) {
    for (const char* head : {"document", "schema"}) v.ignored(head);
    fields(v, body);
  });
  return x;
}
/// The body of every X_from_json. Throws InputError naming file, place, expected and found.
template <typename T>
T read_document(const DocumentKind& kind, const std::string& text, const std::string& place) {
  const Json json = parse_json(text, place);
  const JsonReader document(json, place);
  expect_document(document, kind);
  return read_body<T>(document);
}
Json json_of_document(const DocumentKind& kind, const auto& x) {
  Json json = new_document(kind);
  FieldWriter v(json);
  fields(v, x);
  return json;
}
/// The text of a document. A byte that is no UTF-8, as traces have in names, becomes U+FFFD, so no
/// recording is lost for it.
std::string written_document(const DocumentKind& kind, const auto& x, int indent = 1) {
  return json_of_document(kind, x).dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// The body of every validate(): what the reader of its JSON would say of a struct. Only what it
/// refuses is made JSON, to name the place.
template <typename T>
void validate_document(const DocumentKind& kind, const T& x, const std::string& place) {
  try {
    FieldChecker v;
    fields(v, x);
  } catch (const InputError&) {
    const Json json = json_of_document(kind, x);
    static_cast<void>(read_body<T>(JsonReader(json, place)));
    throw;
  }
}
/// The body of every save(): the text is read back before it replaces anything.
template <typename T>
void save_document(const DocumentKind& kind, const T& x, const std::filesystem::path& path,
                   int indent = 1) {
  const std::string place = path.string();
  validate(x, place);
  const std::string text = written_document(kind, x, indent);
  static_cast<void>(read_document<T>(kind, text, place));
  write_file_atomically(path, text);
}

}  // namespace linerate::doc
