// Who holds a job up, by how much, in how many steps and in which part of them; and what happened
// once and does not repeat.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "linerate/trace/explain/ceilings.hpp"
#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/step_times.hpp"

namespace linerate::trace {

enum class CauseKind : std::uint8_t { late_rank, data_loading, pause };
inline constexpr std::array<std::string_view, 3> kCauseNames = {"late rank", "data loading",
                                                                "pause of every rank"};
constexpr std::string_view name_of(CauseKind k) { return kCauseNames[static_cast<std::size_t>(k)]; }

/// What repeats.
struct Cause {
  CauseKind kind = CauseKind::late_rank;
  std::optional<int> rank = std::nullopt;  // absent: every rank
  double per_step_s = 0;                   // median over the steps that have it
  int steps_with_it = 0, steps = 0;
  std::optional<Phase> where = std::nullopt;  // absent: unknown
  /// Shares of the step: gained without it, if everything else takes as long as recorded; and
  /// gained at most (Gains::most_of). Absent: unknown.
  std::optional<double> gain_share = std::nullopt, most_share = std::nullopt;
};

/// One step that took longer than the others do.
struct Irregularity {
  std::int64_t step = 0;
  std::optional<int> rank = std::nullopt;  // absent: every one, or none: communication
  double longer_s = 0;                     // than the median
  bool communication = false;
  std::optional<Phase> where = std::nullopt;           // absent: unknown
  std::optional<std::int64_t> held_up = std::nullopt;  // the step in which the others wait for it
};

/// Steps whose length, or a rank's own time in them, is far above its median; none of fewer than
/// three steps, and none if more than a quarter stand out. What a rank does after its last
/// collective holds up the others in the next step: then both are irregular.
std::vector<Irregularity> irregularities(const Program& program, const std::vector<int>& ranks);

/// Late ranks by how late they are. `steps`: numbers of all; `left_out`: the irregular ones. A rank
/// is late in a step if it comes later by at least `least_s` and a quarter of its greatest
/// lateness. It is not named if that much is what its steps differ by anyway: if its median is less
/// than three deviations of these steps, or it comes early by half as much in a third as many.
std::vector<Cause> late_ranks(const std::vector<Late>& lateness, const std::vector<int>& ranks,
                              const std::vector<std::int64_t>& steps,
                              const std::set<std::int64_t>& left_out, double least_s);

/// What every rank idles in the same place in more than a few steps: data loading of at least
/// `least_loading_s`, or a pause of at least `least_pause_s`. A rank's own idle time is that of its
/// steps (OwnSteps); of an even number of ranks the lower one in the middle counts.
std::vector<Cause> shared_pauses(const OwnSteps& own, const std::set<std::int64_t>& left_out,
                                 double least_loading_s, double least_pause_s);

/// By lane: median over `steps` of how late it is, 0 if it is early.
std::vector<double> median_lateness_s(const std::vector<Late>& lateness, std::size_t lanes,
                                      const std::vector<std::int64_t>& steps);

}  // namespace linerate::trace
