#include "linerate/doc/fields.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::doc {

double at_least_zero(const JsonReader& r) {
  const double value = r.number();
  if (!(value >= 0)) r.fail(fmt::format("expected at least 0, found {:g}", value));
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

}  // namespace linerate::doc
