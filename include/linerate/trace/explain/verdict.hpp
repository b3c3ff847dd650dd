// The verdict: one rule for every Timeline, first match wins (docs/explain.md, "The rule").
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "linerate/trace/explain/breakdown.hpp"

namespace linerate::trace {

/// What bounds the step.
enum class Finding : std::uint8_t {
  inconclusive,
  input_bound,
  host_bound,
  compute_bound,
  network_bound,
  skew_bound
};
inline constexpr std::array<std::string_view, 6> kFindingNames = {
    "inconclusive", "input-bound", "host-bound", "compute-bound", "network-bound", "skew-bound"};
[[nodiscard]] constexpr std::string_view name_of(Finding f) {
  return kFindingNames[static_cast<std::size_t>(f)];
}

/// Shares of the step at which the verdict changes.
struct Thresholds {
  double data_idle = 0.2;  // above this share of the step idle while data is loaded: input-bound
  double host_idle = 0.5;  // above this share of the step without device activity: host-bound
  double exposed = 0.05;   // below this share of exposed communication: compute-bound
};

/// What bounds the step, why, and what could be gained.
struct Verdict {
  Finding finding = Finding::inconclusive;  // what bounds it
  std::string reason;                       // one sentence with the numbers
  /// (Steps that agree + 1) / (steps + 2); absent when inconclusive.
  std::optional<double> confidence;
  /// Below a confidence of 0.5 the finding is only what the steps lean to.
  bool leans() const { return confidence && *confidence < 0.5; }
  Thresholds thresholds;  // that it was judged by
  // Of the step: the device is idle, it is while data is loaded, communication is exposed.
  double idle_share = 0, loading_share = 0, exposed_share = 0;
  double transfer_share_low = 0, transfer_share_high = 0;  // bounds; equal when all ranks are there
  double wait_share_low = 0, wait_share_high = 0;          // the same of waiting for late ranks
  RemedyShares gains, ceilings;  // as CriticalPath's; of a rank alone from shares of the step
};

/// By the rule of docs/explain.md.
[[nodiscard]] Verdict judge(const Breakdown& breakdown, const Thresholds& thresholds = {});

}  // namespace linerate::trace
