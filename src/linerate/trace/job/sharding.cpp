// A trace does not say how a model is split, but each way leaves its own collectives. Tests run
// from the surest sign to the weakest, and the first that holds gives the name:
//
// 1. annotations of FSDP and the like, unless the job sums whole gradients in spite of them
// 2. reduce-scatters and all-gathers: sharded data parallelism
// 3. sends and receives: a pipeline
// 4. all-to-alls: experts or tables
// 5. most bytes summed over some of the ranks: model parallelism
// 6. a quarter of the bytes summed in forward, and no bucket of gradients: tensor parallelism
//
// Data parallelism shows small traces of all of them, such as a loss that is summed in forward. So
// bytes are compared and not only counts.
#include "linerate/trace/job/sharding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "linerate/trace/job/dense_bytes.hpp"
#include "linerate/trace/job/exchange_sets.hpp"

namespace linerate::trace {
namespace {

/// What a job sent inside its steps, in bytes and number, by operation.
struct Sent {
  std::map<CommOp, std::int64_t> bytes, times;
  std::int64_t summed_in_forward = 0;  // bytes of all-reduces
  std::int64_t summed_in_part = 0;     // bytes of all-reduces over fewer ranks than the job has
  int part = -1;                       // of so many ranks

  bool any(CommOp op) const { return times.contains(op); }
  std::int64_t of(CommOp op) const {
    const auto found = bytes.find(op);
    return found == bytes.end() ? 0 : found->second;
  }
};

/// Whether the communication was asked for during a forward pass, by the phase one ns before.
bool asked_in_forward(const RankActivity& rank, const Communication& c) {
  const std::int64_t before = asked_ns(c) - 1;
  const auto after =
      std::upper_bound(rank.phases.begin(), rank.phases.end(), before,
                       [](std::int64_t t, const PhaseSpan& p) { return t < p.span.start_ns; });
  if (after == rank.phases.begin()) return false;
  const PhaseSpan& phase = *(after - 1);
  return phase.phase == StepPhase::forward && before < phase.span.end_ns;
}

/// Are buckets of the gradients among what is summed?
bool sums_gradients(const Job& job) {
  for (const RankActivity& r : job.ranks)
    for (const auto& range : gradients_of_exchanges(job, r))
      if (range) return true;
  return false;
}

/// Sums over all ranks and steps. Communications of one rank with itself do not count.
Sent sent_in_steps(const Job& job) {
  Sent sent;
  for (const RankActivity& r : job.ranks)
    for (const Communication& c : r.communications) {
      if (c.step < 0 || c.group_size == 1) continue;
      ++sent.times[c.op];
      const std::int64_t bytes = std::clamp<std::int64_t>(c.bytes, 0, std::int64_t{1} << 40);
      sent.bytes[c.op] += bytes;
      if (c.op == CommOp::all_reduce && asked_in_forward(r, c)) sent.summed_in_forward += bytes;
      if (c.op != CommOp::all_reduce || c.group_size < 1 || c.group_size >= job.world_size)
        continue;
      sent.summed_in_part += bytes;
      sent.part = std::max(sent.part, c.group_size);
    }
  return sent;
}

/// Whether FSDP splits nothing, as it does over a mesh of (N, 1). Then nothing is gathered or
/// scattered, and all ranks sum gradients as large as backward made them. If sizes of gradients are
/// unknown, most of what is summed must be summed after forward.
bool sums_whole_gradients(const Job& job, const Sent& sent) {
  constexpr double kWhole = 0.9;
  const bool parts = std::any_of(sent.times.begin(), sent.times.end(), [](const auto& times) {
    return times.first != CommOp::all_reduce && times.first != CommOp::broadcast &&
           times.first != CommOp::barrier;
  });
  if (parts || !sent.any(CommOp::all_reduce) || sent.summed_in_part > 0) return false;
  const std::int64_t summed = sent.of(CommOp::all_reduce);
  if (job.gradients.empty()) return 2 * sent.summed_in_forward <= summed;
  std::size_t steps = 0;
  for (const RankActivity& r : job.ranks) steps += r.steps.size();
  return static_cast<double>(summed) >=
         kWhole * static_cast<double>(dense_bytes(job)) * static_cast<double>(steps);
}

}  // namespace

std::string sharding_of(const Job& job) {
  if (!job.strategy.empty()) return "";  // every strategy is of whole gradients on every rank
  const Sent sent = sent_in_steps(job);
  if (!job.sharding_names.empty() && !sums_whole_gradients(job, sent))
    return fmt::format("{} (its own annotations)", job.sharding_names.front());
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
  constexpr double kOfAll = 0.25;  // a loss, or statistics of norm layers, are less
  const auto in_forward = static_cast<double>(sent.summed_in_forward);
  if (in_forward > 0 && in_forward >= kOfAll * static_cast<double>(sent.of(CommOp::all_reduce)) &&
      !sums_gradients(job))
    return "tensor parallelism (its forward passes sum what the ranks computed, and no exchange is "
           "of "
           "its gradients)";
  return "";
}

}  // namespace linerate::trace
