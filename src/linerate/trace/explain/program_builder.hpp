// Traces become a program (program.hpp). ceilings.cpp is the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "linerate/trace/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// `matched`: the result of match_collectives() for this job. Lanes are in the order of the job's
/// ranks, collectives in the order of the matched ones.
Program program_of(const Job& job, const MatchResult& matched);

// Private: the points of a lane in order, and a rank's own time between them.

/// A point with its times, before the time between points is measured.
struct Timed {
  std::int64_t block_ns = 0, resume_ns = 0;
  Point point;
};

/// Fills in steps, borders, points and start of a lane. `points` are ordered by time; the borders
/// of the rank's steps are added among them. Each point gets the own time since the point before
/// it. The lane starts at the first point, on the rank's own clock.
void set_points(const std::vector<Timed>& points, const RankActivity& rank, const SpanSet& busy,
                Lane& lane);

// Private: a rank's work and communications, and when it asked for each of them. The first step on
// the way from a trace to a lane (program_builder.cpp); times are on the rank's own clock.

/// One communication of one lane on its way into the program.
struct CommunicationDraft {
  PartOf place;
  Span span;
  std::int64_t issue_ns = 0;
  std::int32_t behind = -1;  // position among the lane's drafts
  std::int64_t first = 0;    // pieces of work begun before the issue
  std::int64_t count = 0;    // begun after the issue, before the end
  bool call_known = false;
  bool guessed = false;  // held up, and nothing says when it was asked for
};

struct LaneDraft {
  std::vector<Span> work;             // by start
  std::vector<std::int64_t> done_ns;  // length of the first i pieces
  double work_of_step_ns = 0;
  SpanSet busy;
  std::vector<Span> calls;                 // RankActivity::calls
  std::vector<CommunicationDraft> drafts;  // by start
  std::map<std::int32_t, std::size_t> by_collective;
  std::vector<Timed> waits;
};

/// How many pieces of work, by start, began before `time`.
std::int64_t begun_before(const std::vector<Span>& work, std::int64_t time);

/// `places`: of the rank's communications in the program. `cpu`: its back end's threads hand over
/// more slowly. No piece of work is counted yet.
LaneDraft lane_draft(const RankActivity& rank, const std::vector<PartOf>& places, bool cpu);

}  // namespace linerate::trace
