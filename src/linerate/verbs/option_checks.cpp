// Each check parses with linerate's own parsers, so a check and the verb agree on what a number is.
// A text that is no number and a number out of bounds get the same message: what was expected and
// what was found.
#include "linerate/verbs/option_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::verbs {
namespace {

/// The message of `text` when `good` does not hold for its number; parse_words() puts the option
/// before it.
template <typename Number, typename Good>
std::string complaint(const std::string& text, std::string_view expected,
                      Number (*parse)(std::string_view), Good good) {
  try {
    if (good(parse(text))) return "";
  } catch (const UsageError&) {
  }
  return fmt::format("expected {}, found {}", expected, text);
}

/// Of a finite number: "inf" and "nan" parse, and no option means them. `shown` is what --help
/// prints.
template <typename Good>
CLI::Validator number_check(const std::string& expected, Good good, std::string shown) {
  return {[=](const std::string& text) {
            return complaint(text, "a number " + expected, parse_number,
                             [=](double x) { return std::isfinite(x) && good(x); });
          },
          std::move(shown)};
}

}  // namespace

CLI::Validator above_zero() {
  return number_check(
      "above 0", [](double x) { return x > 0; }, "ABOVE 0");
}

CLI::Validator from_zero() {
  return number_check(
      "from 0", [](double x) { return x >= 0; }, "FROM 0");
}

CLI::Validator between(double least, double most) {
  return number_check(
      fmt::format("from {} to {}", least, most), [=](double x) { return x >= least && x <= most; },
      fmt::format("{} TO {}", least, most));
}

CLI::Validator count(std::int64_t least, std::int64_t most) {
  return {[=](const std::string& text) {
            return complaint(text, fmt::format("a whole number from {} to {}", least, most),
                             parse_integer,
                             [=](std::int64_t n) { return n >= least && n <= most; });
          },
          fmt::format("{} TO {}", least, most)};
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  return {[=](const std::string& text) -> std::string {
            if (std::find(words.begin(), words.end(), text) != words.end()) return "";
            const std::string near = nearest(text, words);
            return fmt::format("expected {}, found {}{}", join(words, " or "), text,
                               near.empty() ? "" : "; did you mean " + near + "?");
          },
          "{" + join(words, ",") + "}"};
}

}  // namespace linerate::verbs
