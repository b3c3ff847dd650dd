// Values of options with a unit or a syntax of their own; an error names the option.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/core/duration.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/cost_model.hpp"

namespace linerate::verbs {

/// What --help calls values with a unit. A caller that has numbers gives them in seconds, bytes and
/// bytes per second, as Python does.
inline constexpr const char *kTime = "TIME", *kSize = "SIZE", *kRate = "RATE";

/// parse(text); its UsageError gets the prefix "--option: ". Parsers know nothing of options: the
/// same ones read files.
template <typename Parse>
auto parse_option(const std::string& option, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", option, e.what()));
  }
}

/// The values between commas outside parentheses; none of an empty text. An example:
/// "topk(density=0.01),fp16" has two values, and "codec(ratio=8, encode=10GB/s)" one.
template <typename Parse>
auto parse_option_list(const std::string& option, const std::string& text, Parse parse) {
  std::vector<decltype(parse(text))> values;
  if (text.empty()) return values;
  for (const std::string& part : split_outside_parentheses(text, ','))
    values.push_back(parse_option(option, part, parse));
  return values;
}

/// Throws UsageError if writing `output` would destroy one of the files it is made from. Files are
/// compared, not names: links and other spellings of a path are seen.
inline void refuse_input_as_output(const std::string& option, const std::string& output,
                                   const std::vector<std::string>& inputs) {
  std::error_code absent;  // what does not exist is equivalent to nothing
  for (const std::string& input : inputs)
    if (!input.empty() && std::filesystem::equivalent(output, input, absent))
      throw UsageError(
          fmt::format("{}: {} is one of the files read; name another", option, output));
}

/// For which a silent rank is waited. A time below a millisecond would end any run, one beyond 1e9
/// s overflows clocks.
inline Duration parse_timeout(const std::string& text) {
  constexpr double kLeast_s = 1e-3, kMost_s = 1e9;  // as a Communicator takes them
  const double seconds = parse_time(text).value;
  if (!(seconds >= kLeast_s && seconds <= kMost_s))
    throw UsageError(fmt::format("expected a time from 1ms to 1e9s, found {}", text));
  return to_duration({seconds});
}

/// A number of ranks that a Plan can have.
inline int parse_ranks(const std::string& text) {
  const std::int64_t ranks = parse_integer(text);
  if (ranks < 1 || ranks > kMostRanks)
    throw UsageError(fmt::format("expected 1 to {} ranks, found {}", kMostRanks, text));
  return static_cast<int>(ranks);
}

/// As a CostModel takes it. Slower is a mistake of units, and times would overflow.
inline BytesPerSecond parse_bandwidth(const std::string& text) {
  const BytesPerSecond rate = parse_rate(text);
  if (!(rate.value >= cost::kLeastBandwidth.value))
    throw UsageError(fmt::format("expected at least 1bit/s, found {}", text));
  return rate;
}

}  // namespace linerate::verbs
