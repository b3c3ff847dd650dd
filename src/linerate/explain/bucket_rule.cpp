// Which rule cut the gradients into the exchanges of a step? check_buckets() chooses a step, and
// check_against() tries explanations, the simplest first. The answer becomes `current` of a
// Workload, so a wrong one would spoil every prediction. If nothing fits, the verdict says so and
// `current` stays empty.
//
// DDP cuts in two orders. Normally buckets are in the order in which gradients get ready, and the
// first one is small (1 MiB). Under find_unused_parameters buckets keep the order of registration.
// Backward runs through that from its end, so the small bucket is the last one sent.
//
// Sizes alone may fit both orders. Gradients of 12, 14, 3 and 0.5 MiB that are sent as 26 and 3.5
// MiB are bucket_cap_mb=25 in ready order. They are also DDP's own limits with the small bucket
// last. In the second case DDP sums a flag for each parameter after the last bucket, and that flag
// decides.
#include "linerate/explain/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string_view>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

constexpr std::int64_t kDdpFirst = 1 << 20, kDdpCap = 25 << 20;

struct Exchange {
  std::int64_t bytes = -1;
  std::optional<DType> dtype;  // as sent
  int turn = 0;                // of the step
};

/// What one step of a rank exchanged.
struct StepExchanges {
  std::vector<Exchange> gradients;  // all-reduces that may carry some, as the host issued them
  std::vector<Exchange> counts;     // all-reduces of whole numbers

  void add(const Exchange& e) {
    if (may_be_gradients(e.dtype))
      gradients.push_back(e);
    else if (e.dtype == DType::i32)
      counts.push_back(e);
  }
  /// Elements of the largest all-reduce of whole numbers; 0: none. Under find_unused_parameters DDP
  /// sums a flag for each parameter after the last bucket.
  std::int64_t flags() const {
    std::int64_t most = 0;
    for (const Exchange& e : counts) most = std::max(most, e.bytes / size_of(DType::i32));
    return most;
  }
  StepExchanges of_turn(int turn) const {
    StepExchanges mine;
    for (const auto* all : {&gradients, &counts})
      for (const Exchange& e : *all)
        if (e.turn == turn) mine.add(e);
    return mine;
  }
};

/// By step of one rank; of kernels if there are any. Only steps that exchange gradients.
std::map<std::int32_t, StepExchanges> exchanges_of(const RankActivity& r) {
  std::map<std::int32_t, StepExchanges> steps;
  for (const auto& [step, positions] : all_reduces_by_step(r))
    for (const std::size_t i : positions)
      steps[step].add(
          {r.communications[i].bytes, r.communications[i].dtype, r.communications[i].turn});
  for (const Communication& c : r.communications)
    if (c.step >= 0 && c.op == CommOp::all_reduce && c.bytes > 0 && !may_be_gradients(c.dtype))
      steps[c.step].add({c.bytes, c.dtype, c.turn});
  if (r.communications.empty())
    for (const Announced& a : r.announced)
      if (a.step >= 0 && a.op == CommOp::all_reduce && a.bytes > 0)
        steps[a.step].add({a.bytes, a.dtype});
  std::erase_if(steps, [](const auto& s) { return s.second.gradients.empty(); });
  return steps;
}

/// Keeps one pass's exchanges if all passes of a step exchange alike.
void keep_one_pass(std::vector<Exchange>& exchanges, int passes) {
  const std::size_t n = exchanges.size() / to_index(passes);
  if (passes < 2 || n == 0 || n * to_index(passes) != exchanges.size()) return;
  for (std::size_t i = n; i < exchanges.size(); ++i)
    if (exchanges[i].bytes != exchanges[i - n].bytes) return;
  exchanges.resize(n);
}

/// Without the gradients only sums can be checked: every bucket but the last reaches its limit.
void check_limits(BucketPlan& plan) {
  std::size_t reached = 0;
  for (std::size_t i = 0; i + 1 < plan.bytes.size(); ++i)
    reached += plan.bytes[i] >= (i == 0 ? kDdpFirst : kDdpCap);
  plan.matches_rule = plan.bytes.size() > 1 && reached + 1 == plan.bytes.size();
  if (plan.matches_rule) plan.strategy = "ddp";
  plan.verdict =
      plan.bytes.size() == 1
          ? "one exchange per step: nothing overlaps (DDP's first step, or a single bucket)"
      : plan.matches_rule
          ? "consistent with DDP's 1 MiB then 25 MiB (gradient sizes are not in the trace)"
          : "not DDP's 1 MiB then 25 MiB: another cap, hook or framework";
}

/// The 16-bit type in which a hook sent the gradients; absent: they were sent as they are.
std::optional<DType> wire_of(const std::vector<Exchange>& exchanges, DType gradients) {
  std::optional<DType> wire;
  for (const Exchange& e : exchanges) {
    if (!e.dtype || size_of(*e.dtype) >= size_of(gradients) || (wire && wire != e.dtype)) continue;
    wire = e.dtype;
  }
  return wire == DType::f16 || wire == DType::bf16 ? wire : std::nullopt;
}

/// Bytes of the gradients that each exchange carries, in the gradients' own type.
std::vector<std::int64_t> carried(const std::vector<Exchange>& exchanges, DType gradients) {
  return mapped(exchanges, [gradients](const Exchange& e) {
    return carried_bytes(e.bytes, e.dtype, gradients);
  });
}

/// As PyTorch calls its hooks.
std::string_view name_of_wire(DType wire) { return wire == DType::f16 ? "fp16" : "bf16"; }

std::string strategy_text(std::string options, std::optional<DType> wire) {
  if (wire) options += fmt::format("{}wire={}", options.empty() ? "" : ", ", name_of_wire(*wire));
  return options.empty() ? "ddp" : fmt::format("ddp({})", options);
}

/// The verdict for people. `options`: of ddp, as ddp_options() writes them. `others`: all-reduces
/// that were passed over.
std::string says(const std::string& options, std::optional<DType> wire, std::size_t others,
                 std::string_view order = ", in ready order") {
  std::string text =
      options.empty() ? fmt::format("exactly DDP's rule: 1 MiB, then 25 MiB{}", order)
      : options == "bucket_cap_mb=25"
          ? "exactly DDP's rule with an explicit cap of 25 MiB: bucket_cap_mb=25"
          : fmt::format(
                "exactly DDP's rule with {} (its own: 1 MiB, then 25 MiB; bucket_cap_mb=25 "
                "is 25 MiB for both)",
                options);
  if (wire) text += fmt::format(", sent as {} (a hook)", name_of_wire(*wire));
  if (others > 0)
    text += fmt::format("; {} other all-reduce{} left out", others,
                        others == 1 ? " of the step is" : "s of the step are");
  return text;
}

/// What was exchanged, and the gradients that a rule may have cut.
struct Trial {
  const std::vector<Exchange>& exchanges;
  std::vector<std::int64_t> ready;  // bytes of the gradients
  DType dtype = DType::f32;         // of the gradients

  std::vector<std::int64_t> sent() const { return carried(exchanges, dtype); }
};

void take_buckets(BucketPlan& plan, const std::vector<Exchange>& buckets) {
  plan.bytes = mapped(buckets, &Exchange::bytes);
}

/// Tries the rule in one of its orders, with its own limits or others. With `small_last` the small
/// limit is for the last bucket: DDP's buckets in registration order, which it keeps under
/// find_unused_parameters. `small_last` says so to people; without it the order is that of
/// readiness. If no limits fit and each gradient has an exchange of its own, ready order is wfbp's.
/// False: neither fits, and `plan` is as it was.
bool follows_order(BucketPlan& plan, const Trial& t,
                   const std::optional<std::string_view>& small_last = {}) {
  std::vector<std::int64_t> gradients = t.ready, sent = t.sent();
  std::vector<Exchange> exchanges = t.exchanges, buckets;
  // Then the last bucket comes first.
  if (small_last)
    std::ranges::reverse(gradients), std::ranges::reverse(sent), std::ranges::reverse(exchanges);
  std::vector<std::size_t> kept;
  const auto limits = limits_of(gradients, sent, kept);
  if (!limits) return false;
  for (const std::size_t i : kept) buckets.push_back(exchanges[i]);
  if (small_last) std::ranges::reverse(buckets);
  const std::optional<DType> wire = wire_of(buckets, t.dtype);
  const std::size_t others = t.exchanges.size() - buckets.size();
  if (const std::optional<std::string> options = ddp_options(*limits)) {
    plan.matches_rule = true;
    if (small_last) {
      plan.strategy =
          strategy_text(options->empty() ? "small=last" : *options + ", small=last", wire);
      plan.verdict = fmt::format("{}; {}", says(*options, wire, others, ""), *small_last);
    } else {
      plan.strategy = strategy_text(*options, wire);
      plan.verdict = says(*options, wire, others);
    }
  } else if (!small_last && buckets.size() == t.ready.size()) {
    plan.strategy = wire ? fmt::format("wfbp(wire={})", name_of_wire(*wire)) : "wfbp";
    plan.verdict = "an exchange for each gradient, in ready order: no buckets";
  } else {
    return false;
  }
  take_buckets(plan, buckets);
  return true;
}

constexpr std::string_view kUnusedFlags =
    "find_unused_parameters: the small bucket is the last one, and a flag for each parameter is "
    "summed after it";
constexpr std::string_view kSmallLast = "the small bucket is the last one: find_unused_parameters";

/// Parameters without a gradient travel in the buckets, too, and the trace does not say in which.
/// Their bytes are known: what was sent less what backward made. They are tried as one tensor in
/// each place between the gradients. Returns the plans of the places at which the rule fits.
std::vector<BucketPlan> with_unused(const BucketPlan& plan, const Trial& t, std::int64_t more,
                                    const std::optional<std::string_view>& small_last = {}) {
  std::vector<BucketPlan> found;
  for (std::size_t at = 0; at <= t.ready.size() && more > 0; ++at) {
    Trial with = t;
    with.ready.insert(with.ready.begin() + static_cast<std::ptrdiff_t>(at), more);
    BucketPlan one = plan;
    if (follows_order(one, with, small_last) && one.matches_rule) found.push_back(one);
  }
  return found;
}

bool all_alike(const std::vector<BucketPlan>& plans) {
  return std::ranges::all_of(
      plans, [&plans](const BucketPlan& p) { return p.strategy == plans.front().strategy; });
}

/// Under find_unused_parameters. If all places that fit give the same limits, these are the answer.
void say_unused(BucketPlan& plan, const Trial& t, std::int64_t flags, std::int64_t more) {
  const std::vector<BucketPlan> found = with_unused(plan, t, more, kUnusedFlags);
  const bool one_answer =
      !found.empty() && all_alike(found) && std::ranges::all_of(found, [&](const BucketPlan& p) {
        return p.bytes == found.front().bytes;
      });
  const std::string unused =
      fmt::format("{} of {} parameters got no gradient, and {} bytes of the buckets are theirs",
                  flags - std::ssize(t.ready), flags, more);
  if (one_answer) plan = found.front();
  plan.verdict =
      one_answer ? fmt::format("{}; {}", plan.verdict, unused)
                 : fmt::format("DDP under find_unused_parameters: {}, so its limits are not known",
                               unused);
}

/// Under static_graph no flag says so. A place that fits with DDP's own limits is the answer. Else
/// all places that fit must give the same limits.
bool follows_with_unused(BucketPlan& plan, const Trial& t, std::int64_t more) {
  const std::vector<BucketPlan> found = with_unused(plan, t, more);
  const auto own = std::ranges::find_if(
      found, [](const BucketPlan& p) { return p.strategy.find('(') == std::string::npos; });
  if (found.empty() || (own == found.end() && !all_alike(found))) return false;
  plan = own == found.end() ? found.front() : *own;
  plan.verdict += fmt::format(
      "; {} bytes of the buckets are of parameters that got no gradient (static_graph=True)", more);
  return true;
}

/// Two models in one backward pass, each wrapped by itself. True if the gradients can be parted in
/// one place so that both parts follow DDP's own limits. linerate has no strategy for this.
bool follows_with_two_models(BucketPlan& plan, const Trial& t) {
  for (std::size_t at = 1; at < t.ready.size(); ++at) {
    const std::span<const std::int64_t> all = t.ready;
    const std::vector<std::int64_t> sent = t.sent();
    std::vector<std::size_t> kept, kept_then;
    const auto first = limits_of(all.first(at), sent, kept);
    if (!first || ddp_options(*first) != "") continue;
    const auto then =
        limits_of(all.subspan(at), std::span(sent).subspan(kept.back() + 1), kept_then);
    if (!then || ddp_options(*then) != "") continue;
    plan.matches_rule = true;
    plan.verdict =
        fmt::format("two models in one backward pass, of {} and {} gradients, each by itself: {}",
                    at, t.ready.size() - at, says("", wire_of(t.exchanges, t.dtype), 0));
    return true;
  }
  return false;
}

std::int64_t total(const std::vector<std::int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::vector<std::int64_t> bytes_of(std::span<const GradientRecord> gradients) {
  return mapped(gradients, bytes_of_gradient);
}

/// Tries explanations in order, until one fits:
///
/// 1. registration order, if flags for all parameters were summed
/// 2. ready order
/// 3. registration order without flags
/// 4. either order with room for parameters that got no gradient
/// 5. two models
void check_against(BucketPlan& plan, const StepExchanges& step,
                   std::span<const GradientRecord> gradients) {
  const Trial t{
      .exchanges = step.gradients, .ready = bytes_of(gradients), .dtype = gradients.front().dtype};
  // Flags for all parameters prove that option; without them it is assumed only if nothing else
  // fits.
  const bool flagged = step.flags() == std::ssize(t.ready);
  if ((flagged && follows_order(plan, t, kUnusedFlags)) || follows_order(plan, t) ||
      follows_order(plan, t, kSmallLast)) {
    // A single bucket fits many rules. DDP would have cut one that is larger than its limit.
    if (plan.bytes.size() != 1 || total(t.ready) <= kDdpCap) return;
    plan.strategy = "bulk";
    plan.verdict = "one bucket with everything: DDP's first step, or all gradients at once";
    return;
  }
  const std::vector<std::int64_t> sent = t.sent();
  const std::int64_t more = total(sent) - total(t.ready);
  if (step.flags() > std::ssize(t.ready) && more > 0)
    return say_unused(plan, t, step.flags(), more);
  if (more > 0 && sent.size() > 1 && follows_with_unused(plan, t, more)) return;
  if (more == 0 && follows_with_two_models(plan, t)) return;
  plan.verdict =
      "not DDP's rule for this trace's gradients, whatever its limits: a hook, or exchanges of "
      "other tensors";
}

/// FSDP over a mesh that splits nothing sums each of the modules that it wraps by itself.
void say_mesh(BucketPlan& plan, const StepExchanges& step, const Job& job) {
  if (job.sharding_names.empty() || !plan.strategy.empty() ||
      total(carried(step.gradients, job.gradients.front().dtype)) != total(bytes_of(job.gradients)))
    return;
  plan.verdict = fmt::format(
      "one for each module that {} wraps, with all gradients of the module: data parallelism over "
      "a mesh that splits nothing, not DDP's buckets",
      job.sharding_names.front());
}

/// Whether all of several buckets were asked for after the backward pass. DDP asks for all but the
/// last one while backward goes on, so such a job is not DDP's. False if the trace does not say.
bool asked_after_backward(const Job& job, const RankActivity& r, std::int32_t step) {
  std::map<int, std::int64_t> ends;  // when the last pass of each turn of the step ended
  for (const BackwardPass& p : r.passes)
    if (p.step == step)
      for (const GradientRecord& g : p.gradients) ends[g.turn] = p.span.start_ns + g.ready_ns;
  const auto carried = gradients_of_exchanges(job, r);
  std::size_t exchanges = 0;
  for (std::size_t i = 0; i < carried.size() && !ends.empty(); ++i) {
    const Communication& c = r.communications[i];
    if (c.step != step || !carried[i]) continue;
    const auto end = ends.find(job.gradients[to_index(carried[i]->last)].turn);
    if (end == ends.end() || c.ready_ns == kNotReady || c.ready_ns < end->second) return false;
    ++exchanges;
  }
  return exchanges > ends.size();
}

/// A step of several turns, as of a GAN. The buckets of each turn are checked by themselves. One
/// configuration made them all, so limits are intersected, and those that fit every turn are the
/// answer.
void check_turns(BucketPlan& plan, const StepExchanges& step, const Job& job, int turns) {
  std::vector<BucketPlan> plans;
  LimitRanges both;
  bool ready_order = true;
  for (int turn = 0; turn < turns; ++turn) {
    const StepExchanges mine = step.of_turn(turn);
    BucketPlan& one = plans.emplace_back();
    take_buckets(one, mine.gradients);
    if (job.gradients.empty()) {
      check_limits(one);
      continue;
    }
    const auto of_turn = std::ranges::equal_range(job.gradients, turn, {}, &GradientRecord::turn);
    check_against(one, mine, of_turn);
    std::vector<std::size_t> kept;
    const auto limits =
        limits_of(bytes_of(of_turn), carried(mine.gradients, job.gradients.front().dtype), kept);
    ready_order &= limits.has_value();
    if (!limits) continue;
    for (const auto part : {&LimitRanges::first, &LimitRanges::rest})
      (both.*part) = {std::max((both.*part).low, ((*limits).*part).low),
                      std::min((both.*part).high, ((*limits).*part).high)};
  }
  plan.matches_rule =
      std::ranges::all_of(plans, [](const BucketPlan& p) { return p.matches_rule; });
  plan.verdict = fmt::format(
      "{} models are trained in turn, or one model so many times, each with an update of its own: ",
      turns);
  const auto options = plan.matches_rule && ready_order ? ddp_options(both) : std::nullopt;
  if (!all_alike(plans) && options && !job.gradients.empty()) {
    const auto wire = wire_of(step.gradients, job.gradients.front().dtype);
    plan.strategy = strategy_text(*options, wire);
    plan.verdict += "each " + says(*options, wire, 0);
  } else if (all_alike(plans)) {
    plan.strategy = plans.front().strategy;
    plan.verdict += "each " + plans.front().verdict;
  } else {
    for (int turn = 0; turn < turns; ++turn)
      plan.verdict +=
          fmt::format("{}{}: {}", turn == 0 ? "" : "; ", turn + 1, plans[to_index(turn)].verdict);
  }
}

/// A Timeline that states its strategy needs no rule. Its buckets are what the last step sent. If a
/// strategy sends each bucket in two halves, only the reduce-scatter counts. Payloads that are only
/// gathered count by their all-gathers.
std::optional<BucketPlan> as_stated(const Job& job) {
  for (const RankActivity& r : job.ranks) {
    std::map<std::int32_t, std::vector<std::int64_t>> sent, gathered;  // by step
    for (const Communication& c : r.communications)
      if (c.step >= 0 && c.gradients && c.bytes > 0 && c.op != CommOp::broadcast)
        (c.op == CommOp::all_gather ? gathered : sent)[c.step].push_back(c.bytes);
    const auto& steps = sent.empty() ? gathered : sent;
    if (steps.empty()) continue;
    BucketPlan plan;
    plan.bytes = steps.rbegin()->second;
    plan.step = r.steps[to_index(steps.rbegin()->first)].number;
    plan.strategy = job.strategy;
    plan.verdict = fmt::format("{}, as the Timeline says", job.strategy);
    return plan;
  }
  return std::nullopt;
}

}  // namespace

/// The first rank that exchanges gradients decides: ranks of one job exchange alike. Before any
/// rule is tried, exchanges that were all asked for after backward are told apart, as DDP never
/// does that.
std::optional<BucketPlan> check_buckets(const Job& job) {
  if (!job.sharding.empty()) return std::nullopt;
  if (!job.strategy.empty()) return as_stated(job);
  for (const RankActivity& r : job.ranks) {
    const auto steps = exchanges_of(r);
    if (steps.empty()) continue;
    // The last step that exchanges as often as most do: a trace may end inside a step.
    std::map<std::size_t, int> counts;
    for (const auto& [step, exchanged] : steps) ++counts[exchanged.gradients.size()];
    const std::size_t usual = most_common(counts);
    const auto chosen = std::find_if(steps.rbegin(), steps.rend(), [usual](const auto& s) {
      return s.second.gradients.size() == usual;
    });
    StepExchanges exchanged = chosen->second;
    keep_one_pass(exchanged.gradients, job.accumulation.passes);
    BucketPlan plan;
    take_buckets(plan, exchanged.gradients);
    plan.step = r.steps[to_index(chosen->first)].number;
    if (asked_after_backward(job, r, chosen->first))
      plan.verdict = fmt::format(
          "{} exchanges, all called after the backward pass, so nothing overlaps. "
          "DistributedDataParallel sends buckets while backward goes on",
          plan.bytes.size());
    else if (const int turns = turns_of(job); turns > 1)
      check_turns(plan, exchanged, job, turns);
    else if (job.gradients.empty())
      check_limits(plan);
    else if (check_against(plan, exchanged, job.gradients); !plan.matches_rule)
      say_mesh(plan, exchanged, job);
    return plan;
  }
  return std::nullopt;
}

}  // namespace linerate::trace
