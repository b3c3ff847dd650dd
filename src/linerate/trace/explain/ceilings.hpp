// What a remedy gains: the job's program is replayed without the cause, and every other task takes
// as long as recorded. And what it could gain at most, if the rest became better with it.
//
// Both figures are needed. Ranks 0, 1 and 2 compute for 10, 10 and 16 ms and exchange for 4 ms, so
// a step takes 20 ms. Replayed with rank 2 on time it takes 14 ms: a gain of 30 %. But the exchange
// may overlap with computation once nobody is late, and a step of 10 ms would gain 50 %. The first
// figure is what to expect, the second one bounds what can be hoped for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "linerate/trace/explain/explanation.hpp"
#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// One cause to leave out. It is a late lane, which then comes with the median of the others, or
/// the pauses of every lane in a phase.
struct RemovedCause {
  std::int32_t late_lane = -1;
  std::optional<StepPhase> pauses_in = {};
  /// The cause takes so much in each of `steps` steps, and no more than that is left out. A lane
  /// that is late by a pause may be slower in other things, too. Absent: all of the lateness is
  /// left out.
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
  /// What the step gains, as a share of the recorded step from 0 to 1. Everything else takes as
  /// long as recorded, and waits for what it waited for. It is no more than the causes take.
  /// Requires known().
  double share_of(const Removal& removal) const;
  /// What it could gain at most, as a share of the recorded step. No step is shorter than what its
  /// busiest rank, or the network, has left to do.
  ///
  /// Other things may become faster without the cause. Data moves as fast as the fastest of its
  /// kind, waiting overlaps, and all of a rank's lateness goes. An infinitely fast network slows no
  /// computation either, so the typical rank then takes what it takes alone.
  double most_of(const Removal& removal) const;
  /// Of each remedy alone.
  RemedyShares by_remedy() const;
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

// Finds what the dependencies of a job's own traces say.

/// `whole`: the traces of all ranks are there, and their communication was found. Otherwise only
/// pauses and irregular steps are looked for, as a replay needs every rank. `matched` is of `job`.
CriticalPath critical_path_of(const Job& job, const MatchResult& matched, bool whole);

}  // namespace linerate::trace
