// Which gradients each exchange of a rank carried, from the sizes of both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Positions first .. last of Job::gradients.
struct GradientRange {
  std::int32_t first = 0, last = 0;
};

/// When the data that it carries was ready; if that is unknown, when it began.
inline std::int64_t asked_ns(const Communication& c) {
  return c.ready_ns == kNotReady ? c.span.start_ns : c.ready_ns;
}

/// Counts and flags are whole numbers, gradients are not; an unknown type may be anything.
bool may_be_gradients(std::optional<DType> type);
/// All-reduces by step of a rank: positions in its communications, as the host issued them.
std::map<std::int32_t, std::vector<std::size_t>> all_reduces_by_step(const RankActivity& rank);
/// Bytes of the gradients that an exchange carries: a hook may send a narrower type than theirs.
std::int64_t carried_bytes(std::int64_t sent, std::optional<DType> type, DType gradients);

/// By communication of the rank: the gradients that it carries. Absent if it is no bucket of its
/// step's gradients in ready order. Example: gradients have 4, 8 and 1 MiB, exchanges 12, 0.001 and
/// 1 MiB. The first exchange carries gradients 0 and 1, the last one gradient 2. The small one is a
/// loss, and absent.
std::vector<std::optional<GradientRange>> gradients_of_exchanges(const Job& job,
                                                                 const RankActivity& rank);

}  // namespace linerate::trace
