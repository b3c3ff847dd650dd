// What a remedy gains: the job's program replayed without the cause, every other task as long as
// recorded. And what it could gain at most, if the rest became better with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/remedy.hpp"
#include "linerate/trace/explain/replay.hpp"

namespace linerate::trace {

/// What one cause adds: a late lane, which then comes with the median of the others, or the pauses
/// of every lane in a phase.
struct RemovedCause {
  std::int32_t late_lane = -1;
  std::optional<StepPhase> pauses_in = {};
  /// That it takes in so many steps: a lane that is late by a pause may be slower in other things,
  /// too. Absent: all of it counts.
  std::optional<std::int64_t> per_step_ns = {};
  int steps = 0;
};

/// What is left out of a replay.
struct Removal {
  std::vector<Remedy> remedies = {};
  std::vector<RemovedCause> causes = {};
};

/// Replays, each over all steps but those left out.
class RemedyGains {
 public:
  /// Nothing is known if communications wait for each other in a circle: no replay.
  /// `alone_s`: the step of a rank that computes alone, at least; absent: unknown.
  RemedyGains(const Program& program, const Lateness& lateness, std::set<std::int64_t> left_out,
              std::optional<double> alone_s = std::nullopt);

  bool known() const { return recorded_.has_value(); }
  /// What the step gains if everything else takes as long as recorded, and waits for what it
  /// waited for, and no more than its causes take; requires known().
  double share_of(const Removal& removal) const;
  /// What it could gain at most: no step is shorter than what its busiest rank, or the network, has
  /// left to do. Without the cause other things may become faster too: data moves as fast as it
  /// ever did, whatever waited overlaps, and a cause is all that is slower there. Without a network
  /// nothing slows computation either, and a device has more of a start on its host: the typical
  /// rank then takes what it takes alone.
  double most_of(const Removal& removal) const;
  /// Mean step after a change; requires known().
  double step_s(const Change& change) const;
  /// Of each remedy alone.
  RemedyShares by_remedy() const;
  std::vector<SharedGain> shared(const RemedyShares& alone) const;
  /// By number of the step.
  std::map<std::int64_t, StepGain> by_step() const;

 private:
  using Borders = std::vector<std::vector<std::int64_t>>;

  Change change_of(const Removal& removal) const;
  void leave_out(const RemovedCause& cause, Cuts& cuts) const;
  double total_s(const Borders& borders) const;
  double network_s() const;
  double slowed_s(const Borders& borders, double alone_s) const;
  double overlapped_share(const Removal& removal, double alone_s) const;
  std::size_t counted_steps() const;
  double share_left(double seconds) const;
  std::map<std::int64_t, double> step_lengths_s(const Borders& borders) const;

  const Program& program_;
  const Lateness& lateness_;
  std::set<std::int64_t> left_out_;
  std::optional<double> alone_s_;
  std::optional<Borders> recorded_;
};

}  // namespace linerate::trace
