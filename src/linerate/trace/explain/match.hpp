// Which communications of different ranks are one collective, and how far the ranks' clocks are
// apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// One member: position in Job::ranks and in its communications.
struct Member {
  std::int32_t rank = 0;
  std::int32_t index = 0;
};

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

}  // namespace linerate::trace
