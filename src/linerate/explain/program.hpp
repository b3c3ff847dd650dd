// A trace as a program that can be replayed: what each rank did between the points at which it
// starts or needs a communication. After Lin et al. 2025 (arXiv 2505.05713), who replay jobs on the
// dependencies of their traces.
//
// A rank is a lane. A lane has three kinds of points. At an issue the rank asks for a
// communication, at a wait it needs the result, and at a border a step begins or ends. Between two
// points lies the rank's own time, at work or idle. Own time has a fixed length; how long a wait
// takes follows from the other lanes.
//
// Example. Ranks 0, 1 and 2 compute for 1, 3 and 2 ms, issue an all-reduce that moves data for 4
// ms, and wait for it. The collective begins with the last issue, at 3 ms, and ends at 7 ms. Rank 0
// waits for 6 ms, rank 1 for 4 ms, rank 2 for 5 ms. If a replay cuts rank 1's own time to 2 ms, the
// collective begins at 2 ms and all waits end at 6 ms. So rank 1 costs the job 1 ms.
//
// A trace does not record waits; program_builder.cpp infers them from pauses.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// A rank's own time by phase, in ns: at work, and idle while it waited for no other rank.
struct OwnTime {
  std::array<std::int64_t, kPhases> work{}, idle{};

  std::int64_t idle_ns() const;
  std::int64_t total_ns() const;
  std::int64_t idle_in(StepPhase p) const { return idle[to_index(p)]; }
  std::int64_t of(StepPhase p) const { return work[to_index(p)] + idle[to_index(p)]; }
  OwnTime& operator+=(const OwnTime& other);
};

enum class PointKind : std::uint8_t { issue, wait, border };

struct Point {
  PointKind kind = PointKind::issue;
  std::int32_t part = -1;  // index into Lane::parts; of a border none
  double within = 1;  // border: where in the wait before it, 0 its begin, 1 its end (and after it)
  OwnTime before = {};  // since the point before it
};

/// A rank's part in a collective.
struct Part {
  std::int32_t collective = -1;  // index into Program::collectives
  std::int32_t behind = -1;      // index into Lane::parts of the part that must end first
  std::int64_t lag_ns = 0;       // from issue, or the end of that part, to its start
  std::int64_t after_ns = 0;     // joint: from the last start to its end; else its duration
};

/// One member of a collective: position in Job::ranks and in its communications, and with that in
/// Program::lanes and Lane::parts.
struct Member {
  std::int32_t rank = 0;
  std::int32_t index = 0;
};

/// One communication. It is `joint` if all of its ranks were seen to meet: no part can end before
/// the last one has begun. Parts of any other communication run by themselves, for as long as
/// recorded.
struct ProgramCollective {
  std::vector<Member> members;  // by rank
  bool joint = false;         // every rank of its group is there, and no part ends before all began
  bool synchronises = false;  // by its operation
  bool gradients = false;
  std::int64_t step = -1;  // number of its step, -1 unknown
};

/// A step of one rank: between two of its borders.
struct StepWindow {
  std::int64_t number = 0;
  std::size_t from = 0, to = 0;
};

struct Lane {
  std::int64_t start_ns = 0;  // on the first rank's clock
  std::vector<Point> points;
  std::vector<Part> parts;  // as the rank's communications
  std::vector<StepWindow> steps;
  std::vector<std::int64_t> borders_ns;  // as recorded, on the rank's own clock
  /// By number of the step: how long its data moves at least. Each transfer counts as the shortest
  /// of its kind does, and what overlaps counts once.
  std::map<std::int64_t, std::int64_t> network_ns;

  /// That the point, which is no border, is about: index into Program::collectives.
  std::size_t collective_of(const Point& point) const {
    return to_index(parts[to_index(point.part)].collective);
  }
};

struct Program {
  std::vector<Lane> lanes;  // as Job::ranks
  std::vector<ProgramCollective> collectives;
};

/// When each lane passes its borders, in ns.
using Borders = std::vector<std::vector<std::int64_t>>;

// Which communications of different ranks are one collective, and how far the ranks' clocks are
// apart.

inline const Communication& communication_of(const Job& job, const Member& m) {
  return job.ranks[to_index(m.rank)].communications[to_index(m.index)];
}

/// A collective as its ranks saw it.
struct Matched {
  std::vector<Member> members;  // by rank
  bool complete = false;        // every rank of its group is among the members
};

struct MatchResult {
  std::vector<Matched> collectives;           // by start on the first member
  std::vector<std::int64_t> clock_offset_ns;  // per rank: add it to be on the first rank's clock
  std::int64_t clock_residual_ns = 0;         // median distance of ends after alignment
  std::vector<std::string> notes;
};

/// Communications of several ranks are one collective if their group and sequence number are equal,
/// or their communication id. A trace without either is counted: the k-th communication of a group
/// in a step is the same collective on every rank. Counting holds as long as operation and bytes
/// agree. At the first disagreement the group is no longer matched, and a note says where.
///
/// Clocks are aligned on the ends of synchronising collectives, because ranks arrive at different
/// times and leave together. Each rank gets one offset, its median difference from the first rank.
MatchResult match_collectives(const Job& job);

/// Traces become a program (program_builder.cpp). `matched`: the result of match_collectives() for
/// this job. Lanes are in the order of the job's ranks, collectives in the order of the matched
/// ones.
Program program_of(const Job& job, const MatchResult& matched);

// A job's program run again, with some of its causes of delay left out. ceilings.cpp says what to
// leave out, and compares the steps of two replays.

/// By lane and point, in ns: own time that is left out. A lane's first point has no own time before
/// it; its value says how much earlier the lane starts.
using Cuts = std::vector<std::vector<std::int64_t>>;

/// What is left out. Nothing else takes less time than recorded.
struct Change {
  bool instant_network = false;  // data moves in no time
  /// Collectives whose ranks were not all seen to meet take no time: for all that is known, they
  /// wait for late ranks.
  bool instant_unmatched = false;
  bool nothing_waits = false;  // no rank waits for a communication
  Cuts cuts_ns = {};
};

/// nullopt if a trace's communications wait for each other in a circle. Without a change: as
/// recorded, on the first rank's clock.
std::optional<Borders> replay(const Program& program, const Change& change = {});

}  // namespace linerate::trace
