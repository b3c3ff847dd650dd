// What could be done about a step, and what each would gain.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace linerate::trace {

enum class Remedy : std::uint8_t {
  infinitely_fast_network,
  no_stragglers,
  perfect_overlap,
  no_host_gaps,
  no_data_stalls
};
inline constexpr std::size_t kRemedies = 5;
inline constexpr std::array<std::string_view, kRemedies> kRemedyNames = {
    "infinitely fast network", "no late ranks", "perfect overlap", "no host gaps",
    "data always there"};
inline constexpr std::array<std::string_view, kRemedies> kRemedyKeys = {
    "infinitely_fast_network", "no_stragglers", "perfect_overlap", "no_host_gaps",
    "no_data_stalls"};
constexpr std::string_view name_of(Remedy r) { return kRemedyNames[static_cast<std::size_t>(r)]; }
constexpr std::string_view key_of(Remedy r) { return kRemedyKeys[static_cast<std::size_t>(r)]; }

/// As a share of the step; absent: unknown.
using RemedyShares = std::array<std::optional<double>, kRemedies>;
constexpr std::optional<double>& share_for(RemedyShares& c, Remedy r) {
  return c[static_cast<std::size_t>(r)];
}
constexpr const std::optional<double>& share_for(const RemedyShares& c, Remedy r) {
  return c[static_cast<std::size_t>(r)];
}

/// Two remedies that gain less together than the sum of what each gains alone.
struct SharedGain {
  Remedy one = Remedy::infinitely_fast_network, other = Remedy::infinitely_fast_network;
  double share = 0;  // of the step: counted twice in that sum
};

/// Seconds that a step becomes shorter.
struct StepGain {
  double transfer_s = 0;       // data moves in no time
  double wait_s = 0;           // every rank comes with the first one
  double communication_s = 0;  // both
};

}  // namespace linerate::trace
