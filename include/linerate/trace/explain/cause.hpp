// Who holds a job up, by how much, in how many steps and in which part of them. What happened once
// is kept apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "linerate/trace/job/phase.hpp"

namespace linerate::trace {

/// What holds a job up again and again.
enum class CauseKind : std::uint8_t { late_rank, data_loading, pause };
inline constexpr std::array<std::string_view, 3> kCauseNames = {"late rank", "data loading",
                                                                "pause of every rank"};
[[nodiscard]] constexpr std::string_view name_of(CauseKind k) {
  return kCauseNames[static_cast<std::size_t>(k)];
}

/// What repeats.
struct Cause {
  CauseKind kind = CauseKind::late_rank;          // what it is
  std::optional<int> rank = std::nullopt;         // absent: every rank
  double per_step_s = 0;                          // median over the steps that have it
  int steps_with_it = 0, steps = 0;               // of so many
  std::optional<StepPhase> where = std::nullopt;  // absent: unknown
  /// Shares of the step: gained without it, if everything else takes as long as recorded; and
  /// gained at most (RemedyGains::most_of). Absent: unknown.
  std::optional<double> gain_share = std::nullopt, most_share = std::nullopt;
};

/// One step that took longer than the others do.
struct Irregularity {
  std::int64_t step = 0;                               // as the trace has it
  std::optional<int> rank = std::nullopt;              // absent: every one, or none: communication
  double longer_s = 0;                                 // than the median
  bool communication = false;                          // a collective took longer
  std::optional<StepPhase> where = std::nullopt;       // absent: unknown
  std::optional<std::int64_t> held_up = std::nullopt;  // the step in which the others wait for it
};

}  // namespace linerate::trace
