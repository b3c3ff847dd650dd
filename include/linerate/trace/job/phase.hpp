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

/// Disjoint spans, by start, from the first to the last of `work` (any order; if spans overlap, the
/// earlier one counts). A pause belongs to what it follows; but to what comes next after data
/// loading, after a backward pass (whose caller goes on when it is done), and after an optimizer
/// that does its part first in a step (zero_grad). A pause that opens a step is between steps,
/// unless data loading comes next. `step_starts` ascend.
[[nodiscard]] std::vector<PhaseSpan> with_pauses(std::vector<PhaseSpan> work,
                                                 const std::vector<std::int64_t>& step_starts);

}  // namespace linerate::trace
