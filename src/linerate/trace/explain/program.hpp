// What a job's ranks did between the points where they start or need a communication: a trace as a
// program that can be replayed. After Lin et al. 2025 (arXiv 2505.05713), who replay jobs on the
// dependencies of their traces.
//
// A rank's lane is its computation and copies, and the pauses between. On it a communication is
// asked for (issue) and needed (wait). A pause that ends with a communication waited for it, unless
// another rank of the same collective did more after the same issue while it was still under way:
// then the pause is the rank's own. A rank that shows no pause waits where the others do: after as
// many pieces of work since the issue.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// A rank's own time by phase, in ns: at work, and idle while it waited for no other rank.
struct OwnTime {
  std::array<std::int64_t, kPhases> work{}, idle{};
  /// Of both: for the exchange of gradients (RankActivity); and of that, idle.
  std::int64_t exchange = 0, exchange_idle = 0;

  std::int64_t idle_ns() const;
  std::int64_t total_ns() const;
  std::int64_t idle_in(StepPhase p) const { return idle[to_index(p)]; }
  std::int64_t of(StepPhase p) const { return work[to_index(p)] + idle[to_index(p)]; }
  OwnTime& operator+=(const OwnTime& other);
};

enum class PointKind : std::uint8_t { issue, wait, border };

struct Point {
  PointKind kind = PointKind::issue;
  std::int32_t collective = -1;  // index into Program::collectives; of a border -1
  std::int32_t part = -1;        // index into ProgramCollective::parts; of a border -1
  double within = 1;  // border: where in the wait before it, 0 its begin, 1 its end (and after it)
  OwnTime before = {};  // since the point before it
};

/// A rank's part in a collective.
struct Part {
  std::int32_t lane = -1;
  std::int32_t place = -1;    // index into Lane::parts
  std::int32_t behind = -1;   // index into Lane::parts of the part that must end first
  std::int64_t lag_ns = 0;    // from issue, or the end of that part, to its start
  std::int64_t after_ns = 0;  // joint: from the last start to its end; else its duration
};

struct ProgramCollective {
  std::vector<Part> parts;
  bool joint = false;         // every rank of its group is there, and no part ends before all began
  bool synchronises = false;  // by its operation
  bool gradients = false;
};

/// Which part of which collective.
struct PartOf {
  std::int32_t collective = -1, part = -1;
};

/// A step of one rank: between two of its borders.
struct StepWindow {
  std::int64_t number = 0;
  std::size_t from = 0, to = 0;
};

struct Lane {
  std::int64_t start_ns = 0;  // on the first rank's clock
  std::vector<Point> points;
  std::vector<PartOf> parts;  // by start
  std::vector<StepWindow> steps;
  std::vector<std::int64_t> borders_ns;  // as recorded, on the rank's own clock
  /// By number of the step: how long its data moves at least. Each transfer counts as the shortest
  /// of its kind does, and what overlaps counts once.
  std::map<std::int64_t, std::int64_t> network_ns;
};

struct Program {
  std::vector<Lane> lanes;  // as Job::ranks
  std::vector<ProgramCollective> collectives;
  std::vector<std::int64_t> step_of;  // by collective: number of its step, -1 unknown
};

}  // namespace linerate::trace
