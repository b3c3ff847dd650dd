// The recording has the hook, and the question is what the job would do without it. The replay
// answers with three changes at once. The hook's own time is cut. Buckets are waited for at the end
// only. The transfer of gradients takes longer, because more bytes move.
//
// The longer transfer comes from the recording itself. If 4 MiB moved in 2 ms and 1 MiB in 1 ms,
// the best rate is 4 MiB in 2 ms. Gradients of 64 MiB would then move in 32 ms. The best rate is
// the right one, because large buckets lose least to latency.
//
// A profiler draws out the host's part of the hook. with_quick_host_s is the step with that part
// cut to nothing; explanation.cpp prints both answers if they differ in sign.
#include "linerate/trace/explain/hook.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/trace/job/dense_bytes.hpp"

namespace linerate::trace {
namespace {

/// What one rank sent of gradients in a step, and how long that moved.
struct StepExchange {
  std::int64_t bytes = 0;
  double seconds = 0;
};

struct Exchanges {
  std::map<std::int64_t, StepExchange> steps;  // by number
  double best_rate = 0;                        // bytes/s, of the median transfer of a size
};

/// What the first rank sent in each step. A step counts only if the size of every collective of
/// gradients is known and its ranks were seen to meet. Half a step would look like a hook.
Exchanges exchanges_of(const Job& job, const Program& program) {
  Exchanges all;
  std::set<std::int64_t> in_part;
  const std::vector<PartOf>& parts = program.lanes.front().parts;
  std::map<std::int64_t, std::vector<double>> by_size;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto at = to_index(parts[i].collective);
    const ProgramCollective& c = program.collectives[at];
    const std::int64_t bytes = job.ranks.front().communications[i].bytes;
    std::int64_t moved = 0;  // until the last rank has it
    for (const Part& part : c.parts) moved = std::max(moved, part.after_ns);
    if (!c.gradients || program.step_of[at] < 0) continue;
    if (!c.joint || bytes <= 0 || moved <= 0) {
      in_part.insert(program.step_of[at]);
      continue;
    }
    const double seconds = static_cast<double>(moved) * 1e-9;
    StepExchange& step = all.steps[program.step_of[at]];
    step.bytes += bytes;
    step.seconds += seconds;
    by_size[bytes].push_back(seconds);
  }
  std::erase_if(all.steps, [&](const auto& step) { return in_part.contains(step.first); });
  for (const auto& [bytes, of_size] : by_size)
    all.best_rate = std::max(all.best_rate, static_cast<double>(bytes) / median(of_size));
  return all;
}

/// Seconds a step that `spans` take within the rank's marks, which are times of the host.
double per_step_s(const RankActivity& rank, const std::vector<Span>& spans) {
  const SpanSet all = union_of(spans);
  double sum = 0;
  for (const StepSpan& s : rank.steps) sum += seconds_of(clipped(all, s.span));
  return rank.steps.empty() ? 0 : sum / static_cast<double>(rank.steps.size());
}

/// The same of work on the device, within the device's own windows of the steps. A device runs
/// later than its host, so the host's mark would cut off the end of a step.
double work_per_step_s(const RankActivity& rank) {
  const SpanSet all = union_of(rank.exchange_work);
  double sum = 0;
  for (const Span& window : windows_of_steps(rank)) sum += seconds_of(clipped(all, window));
  return rank.steps.empty() ? 0 : sum / static_cast<double>(rank.steps.size());
}

Cuts cuts_of(const Program& program, std::int64_t OwnTime::*what) {
  Cuts cuts;
  for (const Lane& lane : program.lanes) {
    cuts.emplace_back();
    for (const Point& p : lane.points) cuts.back().push_back(p.before.*what);
  }
  return cuts;
}

}  // namespace

/// Compares the step as it is with three replays. In the first the hook's host takes no time. In
/// the second no bucket is waited for early. The third has no hook.
std::optional<HookCost> hook_cost(const Job& job, const Program& program,
                                  const RemedyGains& gains) {
  const bool called = std::any_of(job.ranks.begin(), job.ranks.end(),
                                  [](const RankActivity& r) { return !r.exchange_calls.empty(); });
  if (!job.sharding.empty() || job.gradients.empty() || !called || !gains.known())
    return std::nullopt;
  const Exchanges exchanges = exchanges_of(job, program);
  std::vector<double> bytes, seconds;
  for (const auto& [number, e] : exchanges.steps) {
    bytes.push_back(static_cast<double>(e.bytes));
    seconds.push_back(e.seconds);
  }
  if (bytes.empty()) return std::nullopt;
  HookCost cost{.dense_bytes = dense_bytes(job),
                .sent_bytes = static_cast<std::int64_t>(median(bytes)),
                .transfer_s = median(seconds)};
  if (static_cast<double>(cost.sent_bytes) > kHookSendsLess * static_cast<double>(cost.dense_bytes))
    return std::nullopt;
  const auto ranks = static_cast<double>(job.ranks.size());
  for (const RankActivity& r : job.ranks) {
    cost.work_s += work_per_step_s(r) / ranks;
    cost.host_s += per_step_s(r, r.exchange_calls) / ranks;
  }
  cost.dense_transfer_s =
      std::max(cost.transfer_s, static_cast<double>(cost.dense_bytes) / exchanges.best_rate);
  cost.step_s = gains.step_s({});
  cost.with_quick_host_s = gains.step_s({.cuts_ns = cuts_of(program, &OwnTime::exchange_idle)});
  cost.lost_overlap_s =
      std::max(0.0, cost.step_s - gains.step_s({.waits_for_last = true, .cuts_ns = {}}));
  cost.without_s = gains.step_s({.waits_for_last = true,
                                 .transfer_factor = cost.dense_transfer_s / cost.transfer_s,
                                 .cuts_ns = cuts_of(program, &OwnTime::exchange)});
  return cost;
}

}  // namespace linerate::trace
