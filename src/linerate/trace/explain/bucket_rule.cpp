#include "linerate/trace/explain/bucket_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "linerate/core/bucket_limits.hpp"
#include "linerate/trace/job/bucket_limits_found.hpp"
#include "linerate/trace/job/exchange_sets.hpp"

namespace linerate::trace {
namespace {

constexpr std::int64_t kFirst = 1 << 20, kCap = 25 << 20;

struct Exchange {
  std::int64_t bytes = -1;
  std::optional<DType> dtype;  // as sent
};

/// All-reduces per step of one rank, as the host issued them; kernels where there are any.
std::map<std::int32_t, std::vector<Exchange>> exchanges_of(const RankActivity& r) {
  std::map<std::int32_t, std::vector<Exchange>> steps;
  for (const auto& [step, positions] : all_reduces_by_step(r))
    for (const std::size_t i : positions)
      steps[step].push_back({r.communications[i].bytes, r.communications[i].dtype});
  if (steps.empty() && r.communications.empty())
    for (const Announced& a : r.announced)
      if (a.step >= 0 && a.op == CommOp::all_reduce && a.bytes > 0)
        steps[a.step].push_back({a.bytes, a.dtype});
  return steps;
}

/// Where every backward pass of a step exchanges, one pass's.
void keep_one_pass(std::vector<Exchange>& exchanges, int passes) {
  const std::size_t n = exchanges.size() / static_cast<std::size_t>(passes);
  if (passes < 2 || n == 0 || n * static_cast<std::size_t>(passes) != exchanges.size()) return;
  for (std::size_t i = n; i < exchanges.size(); ++i)
    if (exchanges[i].bytes != exchanges[i - n].bytes) return;
  exchanges.resize(n);
}

/// Without the gradients only sums can be checked: every bucket but the last reaches its limit.
void check_limits(BucketPlan& plan) {
  std::size_t reached = 0;
  for (std::size_t i = 0; i + 1 < plan.bytes.size(); ++i)
    reached += plan.bytes[i] >= (i == 0 ? kFirst : kCap);
  plan.matches_rule = plan.bytes.size() > 1 && reached + 1 == plan.bytes.size();
  if (plan.matches_rule) plan.strategy = "ddp";
  plan.verdict =
      plan.bytes.size() == 1
          ? "one exchange per step: nothing overlaps (DDP's first step, or a single bucket)"
      : plan.matches_rule
          ? "consistent with DDP's 1 MiB then 25 MiB (gradient sizes are not in the trace)"
          : "not DDP's 1 MiB then 25 MiB: another cap, hook or framework";
}

/// Narrower than the gradients where all that was sent is of one narrower type.
std::optional<DType> wire_of(const std::vector<Exchange>& exchanges, DType gradients) {
  std::optional<DType> wire;
  for (const Exchange& e : exchanges) {
    if (!e.dtype || size_of(*e.dtype) >= size_of(gradients) || (wire && wire != e.dtype)) continue;
    wire = e.dtype;
  }
  return wire == DType::f16 || wire == DType::bf16 ? wire : std::nullopt;
}

std::vector<std::int64_t> carried(const std::vector<Exchange>& exchanges, DType gradients) {
  std::vector<std::int64_t> bytes;
  for (const Exchange& e : exchanges) bytes.push_back(carried_bytes(e.bytes, e.dtype, gradients));
  return bytes;
}

std::string strategy_text(std::string options, std::optional<DType> wire) {
  if (wire)
    options += fmt::format("{}wire={}", options.empty() ? "" : ", ",
                           *wire == DType::f16 ? "fp16" : "bf16");
  return options.empty() ? "ddp" : fmt::format("ddp({})", options);
}

std::string says(const std::string& options, std::optional<DType> wire, std::size_t others) {
  std::string text =
      options.empty() ? "exactly DDP's rule: 1 MiB, then 25 MiB, in ready order"
      : options == "bucket_cap_mb=25"
          ? "exactly DDP's rule with an explicit cap of 25 MiB: bucket_cap_mb=25"
          : fmt::format(
                "exactly DDP's rule with {} (its own: 1 MiB, then 25 MiB; bucket_cap_mb=25 "
                "is 25 MiB for both)",
                options);
  if (wire)
    text += fmt::format(", sent as {}", *wire == DType::f16 ? "fp16 (a hook)" : "bf16 (a hook)");
  if (others > 0)
    text += fmt::format("; {} other all-reduce{} of the step left out", others,
                        others == 1 ? " is" : "s are");
  return text;
}

/// The rule in ready order, with its own limits or others.
bool follows_ready_order(BucketPlan& plan, const std::vector<Exchange>& exchanges,
                         const std::vector<std::int64_t>& ready, DType dtype) {
  std::vector<std::size_t> kept;
  const auto limits = limits_of(ready, carried(exchanges, dtype), kept);
  if (!limits) return false;
  std::vector<Exchange> buckets;
  for (const std::size_t i : kept) buckets.push_back(exchanges[i]);
  const std::optional<DType> wire = wire_of(buckets, dtype);
  const std::optional<std::string> options = ddp_options(*limits);
  if (options) {
    plan.matches_rule = true;
    plan.strategy = strategy_text(*options, wire);
    plan.verdict = says(*options, wire, exchanges.size() - buckets.size());
  } else if (buckets.size() == ready.size()) {
    plan.strategy =
        wire ? fmt::format("wfbp(wire={})", *wire == DType::f16 ? "fp16" : "bf16") : "wfbp";
    plan.verdict = "an exchange for each gradient, in ready order: no buckets";
  } else {
    return false;
  }
  plan.bytes.clear();
  for (const Exchange& e : buckets) plan.bytes.push_back(e.bytes);
  return true;
}

/// A single bucket fits many rules. What DDP would cut it into says which.
void say_single(BucketPlan& plan, std::int64_t total) {
  if (plan.bytes.size() != 1 || total <= kCap) return;
  plan.strategy = "bulk";
  plan.verdict = "one bucket with everything: DDP's first step, or all gradients at once";
}

void check_against(BucketPlan& plan, const std::vector<Exchange>& exchanges, const Job& job) {
  const DType dtype = job.gradients.front().dtype;
  std::vector<std::int64_t> ready;
  for (const GradientRecord& g : job.gradients) ready.push_back(g.elements * size_of(g.dtype));
  if (follows_ready_order(plan, exchanges, ready, dtype))
    return say_single(plan, std::accumulate(ready.begin(), ready.end(), std::int64_t{0}));
  std::vector<std::int64_t> reversed(ready.rbegin(), ready.rend());
  static constexpr std::array<std::int64_t, 2> kDefault = {kFirst, kCap};
  std::vector<std::int64_t> unused = ddp_buckets(reversed, kDefault);
  std::reverse(unused.begin(), unused.end());
  plan.matches_rule = carried(exchanges, dtype) == unused;
  if (plan.matches_rule) plan.strategy = "ddp(small=last)";
  plan.verdict = plan.matches_rule
                     ? "exactly DDP's rule with find_unused_parameters or a small last bucket"
                     : "not DDP's rule for this trace's gradients, whatever its limits: a hook, or "
                       "exchanges of "
                       "other tensors";
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
  if (!job.sharding.empty()) return std::nullopt;
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
    std::vector<Exchange> exchanges = chosen->second;
    keep_one_pass(exchanges, job.accumulation.passes);
    BucketPlan plan;
    for (const Exchange& e : exchanges) plan.bytes.push_back(e.bytes);
    plan.step = r.steps[static_cast<std::size_t>(chosen->first)].number;
    if (job.gradients.empty())
      check_limits(plan);
    else
      check_against(plan, exchanges, job);
    return plan;
  }
  return std::nullopt;
}

}  // namespace linerate::trace
