// The parts of a training step that a delay can arise in.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "linerate/core/intervals.hpp"

namespace linerate::trace {

/// What a step was doing.
enum class StepPhase : std::uint8_t {
  data_loading,
  copy,
  forward,
  backward,
  optimizer,
  between_steps,  // a pause: nothing is at work there
  unknown
};
/// How many there are.
inline constexpr std::size_t kPhases = 7;
/// What name_of() gives, by value.
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {
    "data loading", "host-device copy", "forward", "backward",
    "optimizer",    "between steps",    "unknown"};
[[nodiscard]] constexpr std::string_view name_of(StepPhase p) {
  return kPhaseNames[static_cast<std::size_t>(p)];
}

/// A time in which it did one thing.
struct PhaseSpan {
  Span span;                             // when
  StepPhase phase = StepPhase::unknown;  // what
};

/// Fills the pauses in `work`, which may come in any order. The result is disjoint, by start, and
/// reaches from the first to the last of `work`. If spans overlap, the earlier one counts.
///
/// A pause belongs to the phase before it, with three exceptions. After data loading, after a
/// backward pass, and after an optimizer that opens a step (zero_grad), it belongs to the phase
/// that follows. The caller of a backward pass goes on only when the pass is done, so the pause is
/// the caller's. `step_starts` ascend. A pause that contains one is cut there, and the second part
/// is between steps, unless data loading comes next.
///
/// Example. Forward ends at 4 ms, backward is from 5 to 9 ms, the optimizer from 11 to 12 ms. The
/// pause at 4 ms is forward's, the one at 9 ms is the optimizer's.
[[nodiscard]] std::vector<PhaseSpan> with_pauses(std::vector<PhaseSpan> work,
                                                 const std::vector<std::int64_t>& step_starts);

}  // namespace linerate::trace
