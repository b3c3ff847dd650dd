#include "linerate/trace/explain/bucket_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "linerate/core/bucket_limits.hpp"

namespace linerate::trace {
namespace {

constexpr std::int64_t kFirst = 1 << 20, kCap = 25 << 20;

/// Gradient exchanges per step of one rank; kernels where there are any.
std::map<std::int32_t, std::vector<std::int64_t>> exchanges_of(const RankActivity& r) {
  std::map<std::int32_t, std::vector<std::int64_t>> steps;
  for (const Communication& c : r.communications)
    if (c.step >= 0 && c.op == CommOp::all_reduce && c.gradients && c.bytes > 0)
      steps[c.step].push_back(c.bytes);
  if (steps.empty() && r.communications.empty())
    for (const Announced& a : r.announced)
      if (a.step >= 0 && a.op == CommOp::all_reduce && a.bytes > 0)
        steps[a.step].push_back(a.bytes);
  return steps;
}

/// Without the gradients only sums can be checked: every bucket but the last reaches its limit.
void check_limits(BucketPlan& plan) {
  std::size_t reached = 0;
  for (std::size_t i = 0; i + 1 < plan.bytes.size(); ++i)
    reached += plan.bytes[i] >= (i == 0 ? kFirst : kCap);
  plan.matches_rule = plan.bytes.size() > 1 && reached + 1 == plan.bytes.size();
  plan.verdict =
      plan.bytes.size() == 1
          ? "one exchange per step: nothing overlaps (DDP's first step, or a single bucket)"
      : plan.matches_rule
          ? "consistent with DDP's 1 MiB then 25 MiB (gradient sizes are not in the trace)"
          : "not DDP's 1 MiB then 25 MiB: another cap, hook or framework";
}

void check_against(BucketPlan& plan, const std::vector<std::int64_t>& ready) {
  const std::int64_t total = std::accumulate(ready.begin(), ready.end(), std::int64_t{0});
  std::vector<std::int64_t> reversed(ready.rbegin(), ready.rend());
  static constexpr std::array<std::int64_t, 2> kDefault = {kFirst, kCap};
  static constexpr std::array<std::int64_t, 1> kPlain = {kCap};
  if (plan.bytes == ddp_buckets(ready, kDefault)) {
    plan.matches_rule = true;
    plan.verdict = "exactly DDP's rule: 1 MiB, then 25 MiB, in ready order";
  } else if (plan.bytes == ddp_buckets(ready, kPlain)) {
    plan.matches_rule = true;
    plan.verdict = "exactly DDP's rule with an explicit cap of 25 MiB";
  } else if (plan.bytes == std::vector<std::int64_t>{total}) {
    plan.matches_rule = true;
    plan.verdict = "one bucket with everything: DDP's first step";
  } else {
    std::vector<std::int64_t> unused = ddp_buckets(reversed, kDefault);
    std::reverse(unused.begin(), unused.end());
    plan.matches_rule = plan.bytes == unused;
    plan.verdict =
        plan.matches_rule
            ? "exactly DDP's rule with find_unused_parameters or a small last bucket"
            : "not DDP's rule of 1 MiB and 25 MiB for this trace's gradients: another cap, a hook, "
              "or exchanges of other tensors";
  }
}

}  // namespace

std::vector<std::int64_t> ddp_buckets(std::span<const std::int64_t> gradient_bytes,
                                      std::span<const std::int64_t> limits) {
  std::vector<std::int64_t> buckets;
  std::int64_t open = 0;
  BucketLimits rule(limits);
  for (const std::int64_t g : gradient_bytes) {
    open += g;
    if (!rule.closes_at(open)) continue;
    buckets.push_back(open);
    open = 0;
  }
  if (open > 0) buckets.push_back(open);
  return buckets;
}

std::optional<BucketPlan> check_buckets(const Job& job) {
  for (const RankActivity& r : job.ranks) {
    const auto steps = exchanges_of(r);
    if (steps.empty()) continue;
    // The last step that exchanges as often as most do: a trace may end inside a step.
    std::map<std::size_t, int> counts;
    for (const auto& [step, bytes] : steps) ++counts[bytes.size()];
    const std::size_t usual =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
    const auto chosen = std::find_if(steps.rbegin(), steps.rend(),
                                     [usual](const auto& s) { return s.second.size() == usual; });
    BucketPlan plan;
    plan.bytes = chosen->second;
    plan.step = r.steps[static_cast<std::size_t>(chosen->first)].number;
    std::vector<std::int64_t> ready;
    for (const GradientRecord& g : job.gradients) ready.push_back(g.elements * size_of(g.dtype));
    if (ready.empty())
      check_limits(plan);
    else
      check_against(plan, ready);
    return plan;
  }
  return std::nullopt;
}

}  // namespace linerate::trace
