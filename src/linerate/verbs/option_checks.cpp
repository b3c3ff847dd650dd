#include "linerate/verbs/option_checks.hpp"

#include <fmt/format.h>

#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::verbs {
namespace {

/// The message of `text` when `good` does not hold for its number; CLI11 puts the option before it.
template <typename Good>
std::string complaint(const std::string& text, std::string_view expected, Good good) {
  try {
    if (good(parse_number(text))) return "";
  } catch (const UsageError&) {
  }
  return fmt::format("expected {}, found {}", expected, text);
}

}  // namespace

CLI::Validator above_zero() {
  return {[](const std::string& text) {
            return complaint(text, "a number above 0", [](double x) { return x > 0; });
          },
          "ABOVE 0"};
}

CLI::Validator from_zero() {
  return {[](const std::string& text) {
            return complaint(text, "a number from 0", [](double x) { return x >= 0; });
          },
          "FROM 0"};
}

CLI::Validator count(std::int64_t least, std::int64_t most) {
  return {[least, most](const std::string& text) {
            const auto is_whole_within = [=](double x) {
              return x >= static_cast<double>(least) && x <= static_cast<double>(most) &&
                     x == std::floor(x);
            };
            return complaint(text, fmt::format("a whole number from {} to {}", least, most),
                             is_whole_within);
          },
          fmt::format("{} TO {}", least, most)};
}

}  // namespace linerate::verbs
