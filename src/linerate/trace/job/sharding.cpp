#include "linerate/trace/job/sharding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace linerate::trace {
namespace {

/// What a job sent inside its steps, in bytes and number, by operation.
struct Sent {
  std::map<CommOp, std::int64_t> bytes, times;
  std::int64_t summed_in_part = 0;  // bytes of all-reduces over fewer ranks than the job has
  int part = -1;                    // of so many ranks

  bool any(CommOp op) const { return times.contains(op); }
  std::int64_t of(CommOp op) const {
    const auto found = bytes.find(op);
    return found == bytes.end() ? 0 : found->second;
  }
};

Sent sent_in_steps(const Job& job) {
  Sent sent;
  for (const RankActivity& r : job.ranks)
    for (const Communication& c : r.communications) {
      if (c.step < 0) continue;
      ++sent.times[c.op];
      const std::int64_t bytes = std::clamp<std::int64_t>(c.bytes, 0, std::int64_t{1} << 40);
      sent.bytes[c.op] += bytes;
      if (c.op != CommOp::all_reduce || c.group_size < 1 || c.group_size >= job.world_size)
        continue;
      sent.summed_in_part += bytes;
      sent.part = std::max(sent.part, c.group_size);
    }
  return sent;
}

}  // namespace

std::string sharding_of(const Job& job) {
  if (!job.sharding_names.empty())
    return fmt::format("{} (its own annotations)", job.sharding_names.front());
  const Sent sent = sent_in_steps(job);
  if (sent.any(CommOp::reduce_scatter) && sent.any(CommOp::all_gather) &&
      2 * sent.of(CommOp::reduce_scatter) >= sent.of(CommOp::all_reduce))
    return "sharded data parallelism: FSDP, ZeRO or a distributed optimizer (reduce-scatters and "
           "all-gathers in its steps)";
  if (sent.any(CommOp::send) || sent.any(CommOp::recv) || sent.any(CommOp::send_recv))
    return "pipeline parallelism (sends and receives in its steps)";
  if (sent.any(CommOp::all_to_all))
    return "expert- or table-parallelism (all-to-alls in its steps)";
  if (2 * sent.summed_in_part > sent.of(CommOp::all_reduce))
    return fmt::format("model parallelism (most of what it sums is summed over {} of its {} ranks)",
                       sent.part, job.world_size);
  return "";
}

}  // namespace linerate::trace
