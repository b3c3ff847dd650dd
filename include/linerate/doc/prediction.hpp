// What a step with K-FAC spends its time on, by exclusion of parts.
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::doc {

/// In the order in which parts join a step. The time of a part is a difference: the step with it
/// and all parts before it, less the step with those before it alone. So it is exposed time, and
/// the parts sum to the step. Shi, Zhang & Li 2021 measured their tables so.
enum class StepPart : std::uint8_t {
  forward_backward,        // and whatever else one rank does alone: update, tail
  gradient_communication,  // with coding and copies of gradients, and other collectives
  factor_computation,      // with packing and averaging
  factor_communication,
  inverse_computation,   // with preconditioning and the KL clip
  inverse_communication  // or that of directions, with their copies
};
inline constexpr std::array<std::string_view, 6> kStepPartNames = {
    "forward_backward",     "gradient_communication", "factor_computation",
    "factor_communication", "inverse_computation",    "inverse_communication"};
[[nodiscard]] constexpr std::string_view name_of(StepPart part) {
  return kStepPartNames[static_cast<std::size_t>(part)];
}

/// Seconds by StepPart.
using StepParts = std::array<double, kStepPartNames.size()>;

// A value and how far it may be off.
// Thread safety: values.

/// A value with its 90 % interval; absent ends: its error is unknown, not zero.
struct Bounded {
  double value = 0;                                               // the best estimate
  std::optional<double> low = std::nullopt, high = std::nullopt;  // ends of the interval

  /// Whether both ends are known.
  bool has_interval() const { return low && high; }
  /// The low end, or the value if it has none.
  double low_or_value() const { return low.value_or(value); }
  /// The high end, or the value if it has none.
  double high_or_value() const { return high.value_or(value); }
};

// Predictions: what a step of one job would take under other strategies, rank counts, networks and
// compression ratios.

/// The prediction of one combination. Absent values are unknown or undefined there.
struct Prediction {
  std::string strategy;                       // canonical text
  int ranks = 1;                              // of the job
  std::optional<double> bandwidth_bit_per_s;  // of the network, per direction
  double compression_ratio = 1;               // dense bytes over sent bytes
  // Whether the strategy takes other steps, so that step times do not compare. Ignores a ratio that
  // is swept apart from the strategy.
  bool changes_convergence = false;
  std::optional<Bounded> step_s;                  // T_n; absent: the one-rank step is unknown
  std::optional<double> scaling_factor;           // T_1 / T_n, the same batch per rank
  std::optional<double> communication_s;          // network time of a step, hidden or not
  std::optional<double> exposed_communication_s;  // of the step: doc/scaling_factor.hpp
  // With K-FAC: exposed seconds of each part, summing to the step.
  std::optional<StepParts> parts_s{};
  // Only of preset agarwal2021: the ratio that is enough (absent: none is), and what encoding and
  // decoding may cost at this one.
  std::optional<double> required_ratio;      // with the paper's buckets
  std::optional<double> required_ratio_ddp;  // with those that DDP fills
  std::optional<double> encode_budget_s;     // of the whole model; absent: none is enough
};

/// Whether the step is known with an interval.
[[nodiscard]] inline bool has_interval(const Prediction& p) {
  return p.step_s && p.step_s->has_interval();
}

/// Predictions::preset of that paper's closed model.
inline constexpr std::string_view kAgarwal2021 = "agarwal2021";

/// Schema 1: the output of `linerate whatif --json`.
struct Predictions {
  std::string workload{};                   // its name
  std::int64_t gradients = 0;               // how many
  std::int64_t gradient_bytes = 0;          // of all of them
  std::optional<double> one_rank_step_s{};  // T_1
  std::string preset{};                 // a paper's model; empty: the simulator over the Cluster
  std::vector<Prediction> predictions;  // strategies, ranks, bandwidths, ratios, the last fastest
  std::vector<std::string> notes{};     // what was extrapolated, assumed or not known; each once
};

[[nodiscard]] std::string to_json(const Predictions&);
/// Also reads {"predictions": [...]} alone. Throws InputError with the JSON path of what is wrong.
[[nodiscard]] Predictions predictions_from_json(const std::string& text, const std::string& place);

}  // namespace linerate::doc
