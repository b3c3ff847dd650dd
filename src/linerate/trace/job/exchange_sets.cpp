#include "linerate/trace/job/periods.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {

bool may_be_gradients(std::optional<DType> type) {
  return type != DType::i32 && type != DType::i64;
}

std::map<std::int32_t, std::vector<std::size_t>> all_reduces_by_step(const RankActivity& rank) {
  std::map<std::int32_t, std::vector<std::size_t>> steps;
  for (const std::size_t i : in_order_of_issue(rank)) {
    const Communication& c = rank.communications[i];
    if (c.step >= 0 && c.op == CommOp::all_reduce && c.gradients && c.bytes > 0)
      steps[c.step].push_back(i);
  }
  return steps;
}

std::int64_t carried_bytes(std::int64_t sent, std::optional<DType> type, DType gradients) {
  return sent / (type ? size_of(*type) : size_of(gradients)) * size_of(gradients);
}

/// limits_of() finds which exchanges of a step are buckets. Walking along the gradients once more,
/// by the bucket's bytes, gives the range of each.
std::vector<std::optional<GradientRange>> gradients_of_exchanges(const Job& job,
                                                                 const RankActivity& rank) {
  std::vector<std::optional<GradientRange>> ranges(rank.communications.size());
  if (job.gradients.empty()) return ranges;
  const std::vector<std::int64_t> gradients = mapped(job.gradients, bytes_of_gradient);
  for (const auto& [step, positions] : all_reduces_by_step(rank)) {
    const std::vector<std::int64_t> bytes = mapped(positions, [&](std::size_t i) {
      const Communication& c = rank.communications[i];
      return carried_bytes(c.bytes, c.dtype, job.gradients.front().dtype);
    });
    std::vector<std::size_t> kept;
    if (!limits_of(gradients, bytes, kept)) continue;
    std::int32_t next = 0;
    for (const std::size_t k : kept) {
      GradientRange range{next, next};
      for (std::int64_t sum = 0; sum < bytes[k]; ++next) sum += gradients[to_index(next)];
      range.last = next - 1;
      ranges[positions[k]] = range;
    }
  }
  return ranges;
}

// Limits are ranges until the end, because many limits give the same buckets. Only the last step
// chooses a number for people (roundest_mib), and prefers those that PyTorch has as defaults.

namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kDefaultFirst = 1 * kMiB, kDefaultCap = 25 * kMiB;

/// Narrows a limit by one bucket. The bucket reached its limit with its last tensor, of `last`
/// bytes, and not before. A bucket that the end of the gradients closed may not have reached it.
void narrow(LimitRange& limit, std::int64_t bytes, std::int64_t last, bool at_end) {
  limit.low = std::max(limit.low, bytes - last);
  if (!at_end) limit.high = std::min(limit.high, bytes);
}

/// The number that a person would have typed: 25 before a multiple of 100, of 50, ... of 1.
std::optional<std::int64_t> roundest_mib(const LimitRange& limit) {
  if (limit.holds(kDefaultCap)) return kDefaultCap / kMiB;
  for (const std::int64_t step : {100, 50, 25, 10, 5, 4, 2, 1}) {
    const std::int64_t least = limit.low / (step * kMiB) * step + step;
    if (limit.holds(least * kMiB)) return least;
  }
  return std::nullopt;
}

/// A size between the two measured ends, in the fewest digits.
std::string size_text(const LimitRange& limit) {
  if (const auto mib = roundest_mib(limit)) return fmt::format("{}MiB", *mib);
  for (std::int64_t unit = 1 << 19; unit > 1; unit /= 2)
    if (const std::int64_t least = limit.low / unit * unit + unit; limit.holds(least))
      return least % 1024 == 0 ? fmt::format("{}KiB", least / 1024) : fmt::format("{}B", least);
  return fmt::format("{}B", limit.low + 1);
}

}  // namespace

/// One walk over both lists is enough. Sizes are above 0, so a sum that passes the exchange's size
/// without meeting it cannot come back, and the exchange is no bucket. A foreign exchange of just
/// the right size is taken for one: nothing here tells them apart.
std::optional<LimitRanges> limits_of(std::span<const std::int64_t> gradients,
                                     std::span<const std::int64_t> exchanged,
                                     std::vector<std::size_t>& kept) {
  LimitRanges limits;
  kept.clear();
  std::size_t next = 0;  // gradient
  for (std::size_t i = 0; i < exchanged.size() && next < gradients.size(); ++i) {
    std::int64_t sum = 0;
    std::size_t end = next;
    while (end < gradients.size() && sum < exchanged[i]) sum += gradients[end++];
    if (sum != exchanged[i] || end == next) continue;
    narrow(kept.empty() ? limits.first : limits.rest, sum, gradients[end - 1],
           end == gradients.size());
    kept.push_back(i);
    next = end;
  }
  if (next < gradients.size() || kept.empty()) return std::nullopt;
  return limits;
}

std::optional<std::string> ddp_options(const LimitRanges& limits) {
  const auto& [first, rest] = limits;
  if (first.empty() || rest.empty()) return std::nullopt;
  if (first.holds(kDefaultFirst) && rest.holds(kDefaultCap)) return "";
  const LimitRange both{std::max(first.low, rest.low), std::min(first.high, rest.high)};
  if (!both.empty())
    if (const auto mib = roundest_mib(both)) return fmt::format("bucket_cap_mb={}", *mib);
  const std::string bucket = size_text(rest);
  if (first.holds(kDefaultFirst)) return fmt::format("bucket={}", bucket);
  return fmt::format("bucket={}, first={}", both.empty() ? bucket : size_text(both),
                     both.empty() ? size_text(first) : size_text(both));
}

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

namespace {

/// What a job sent inside its steps, in bytes and number, by operation.
struct Sent {
  std::array<std::int64_t, kCommOpNames.size()> bytes{}, times{};
  std::int64_t summed_in_forward = 0;  // bytes of all-reduces
  std::int64_t summed_in_part = 0;     // bytes of all-reduces over fewer ranks than the job has
  int part = -1;                       // of so many ranks

  bool any(CommOp op) const { return times[to_index(op)] > 0; }
  std::int64_t of(CommOp op) const { return bytes[to_index(op)]; }
};

/// Whether the communication was asked for during a forward pass, by the phase one ns before.
bool asked_in_forward(const RankActivity& rank, const Communication& c) {
  return phase_at(rank.phases, asked_ns(c) - 1) == StepPhase::forward;
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
      ++sent.times[to_index(c.op)];
      const std::int64_t bytes = std::clamp<std::int64_t>(c.bytes, 0, std::int64_t{1} << 40);
      sent.bytes[to_index(c.op)] += bytes;
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
  auto parts = std::accumulate(sent.times.begin(), sent.times.end(), std::int64_t{0});
  for (const CommOp whole : {CommOp::all_reduce, CommOp::broadcast, CommOp::barrier})
    parts -= sent.times[to_index(whole)];
  if (parts > 0 || !sent.any(CommOp::all_reduce) || sent.summed_in_part > 0) return false;
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

// Notes on gradient accumulation. A step of four passes should exchange once, in the last pass. If
// all four exchange, no_sync() is missing. If only the first does, gradients of the others are
// never summed, and the ranks' models drift apart.

namespace {

/// Bytes of gradients by pass: from the begin of the pass to the begin of the next one. Empty: the
/// step has another number of passes than usual.
using PassSent = std::vector<std::int64_t>;

/// By step with the usual number of passes. A communication belongs to the last pass that had begun
/// when it was asked for. An unknown size counts as one byte.
std::vector<PassSent> sent_by_step(const RankActivity& rank, std::size_t passes) {
  std::vector<std::vector<std::int64_t>> begins(rank.steps.size());
  for (const BackwardPass& p : rank.passes) begins[to_index(p.step)].push_back(p.span.start_ns);
  std::vector<PassSent> steps(rank.steps.size());
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (begins[s].size() == passes) steps[s].resize(passes);
  for (const Communication& c : rank.communications) {
    if (c.step < 0 || !c.gradients || !carries_gradients(c.op)) continue;
    const auto step = to_index(c.step);
    const auto& of_step = begins[step];
    const auto after = std::upper_bound(of_step.begin(), of_step.end(), asked_ns(c));
    if (steps[step].empty() || after == of_step.begin()) continue;
    steps[step][to_index(after - of_step.begin() - 1)] +=
        std::clamp<std::int64_t>(c.bytes, 1, std::int64_t{1} << 40);
  }
  std::erase_if(steps, [](const PassSent& s) { return s.empty(); });
  return steps;
}

/// Numbers, from 1, of the passes that exchange in most steps. An exchange is a tenth of what the
/// busiest pass of the step sends, and more than a loss or a flag.
std::vector<int> passes_that_exchange(const Job& job) {
  constexpr std::int64_t kOfALoss = 1024;
  const auto passes = to_index(job.accumulation.passes);
  std::vector<int> times(passes, 0);
  int steps = 0;
  for (const RankActivity& r : job.ranks)
    for (const PassSent& sent : sent_by_step(r, passes)) {
      ++steps;
      const std::int64_t most = *std::ranges::max_element(sent);
      for (std::size_t p = 0; p < passes; ++p)
        times[p] += sent[p] > kOfALoss && sent[p] * 10 >= most;
    }
  std::vector<int> exchange;
  for (std::size_t p = 0; p < passes; ++p)
    if (2 * times[p] > steps) exchange.push_back(static_cast<int>(p) + 1);
  return exchange;
}

std::string passes_text(const std::vector<int>& passes) {
  return fmt::format("pass{} {}", passes.size() == 1 ? "" : "es", fmt::join(passes, ", "));
}

}  // namespace

std::vector<std::string> accumulation_in_words(const Job& job) {
  const int count = job.accumulation.passes;
  if (count == 1) return {};
  std::vector<std::string> notes = {fmt::format(
      "gradients of {} backward passes add up before an optimizer step{}. T_1 includes all of "
      "them, and only the last backward pass can hide an exchange",
      count,
      job.accumulation.marks > 1 ? fmt::format(", {} marks of the profiler", job.accumulation.marks)
                                 : "")};
  const std::vector<int> exchange = passes_that_exchange(job);
  if (std::ssize(exchange) == count)
    notes.push_back(
        "every one of these passes exchanges its gradients; no_sync() around all but the last "
        "would send them once");
  else if (!exchange.empty() && exchange.back() != count)
    notes.push_back(
        fmt::format("of these {} passes {} exchange{} gradients and the later ones do not. "
                    "Gradients of the later ones are never summed over the ranks, so the models "
                    "drift apart. Put no_sync() around all passes but the last",
                    count, passes_text(exchange), exchange.size() == 1 ? "s" : ""));
  else if (exchange.size() > 1)
    notes.push_back(
        fmt::format("of these {} passes {} exchange gradients; no_sync() around all but the last "
                    "would send them once",
                    count, passes_text(exchange)));
  return notes;
}

std::string no_exchange_in_words(const Job& job) {
  if (job.world_size < 2 || !job.strategy.empty() || job.communication_unknown ||
      job.gradients.empty())
    return "";
  double others = 0, bytes = 0, steps = 0;
  for (const RankActivity& r : job.ranks) {
    std::map<std::int32_t, std::int64_t> sent;  // by step
    for (const Communication& c : r.communications) {
      if (c.step < 0 || c.group_size == 1) continue;
      if (c.gradients && carries_gradients(c.op)) return "";
      sent[c.step] += std::clamp<std::int64_t>(c.bytes, 0, std::int64_t{1} << 40);
    }
    steps += static_cast<double>(r.steps.size());
    for (const auto& [step, of_step] : sent) ++others, bytes += static_cast<double>(of_step);
  }
  if (others == 0) return "";
  const bool parameters = 2 * bytes / others >= static_cast<double>(dense_bytes(job));
  return fmt::format(
      "gradients are never exchanged: {}. whatif and advise predict a job that sums gradients in "
      "every step, not this one",
      parameters
          ? fmt::format("the ranks average {} of parameters after the optimizer, in one of {:.3g} "
                        "steps (local SGD)",
                        format_size(bytes / others), steps / others)
          : "the ranks send something other than sums of a backward pass's gradients");
}

namespace {

/// By number of the step: has it as many communications as any step of its rank? (The usual one
/// may be a part: of a short recording that ends early most steps are.)
using FullSteps = std::map<std::int64_t, bool>;

FullSteps full_steps(const RankActivity& rank) {
  std::vector<std::int64_t> counts(rank.steps.size(), 0);
  for (const Communication& c : rank.communications)
    if (c.step >= 0) ++counts[to_index(c.step)];
  FullSteps steps;
  if (counts.empty()) return steps;
  const std::int64_t most = *std::ranges::max_element(counts);
  for (std::size_t i = 0; i < counts.size(); ++i) steps[rank.steps[i].number] = counts[i] == most;
  return steps;
}

}  // namespace

void find_partial_steps(Job& job) {
  FullSteps on_any;  // on some rank
  const std::vector<FullSteps> ranks = mapped(job.ranks, full_steps);
  for (const FullSteps& rank : ranks)
    for (const auto& [number, full] : rank) on_any[number] |= full;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto partial = [&](const StepSpan& s) {
      return !ranks[r].at(s.number) && on_any.at(s.number);
    };
    std::vector<StepSpan>& steps = job.ranks[r].steps;
    for (auto s = steps.rbegin(); s != steps.rend() && partial(*s); ++s) s->partial = true;
    for (auto s = steps.begin(); s != steps.end() && partial(*s); ++s) s->partial = true;
  }
}

}  // namespace linerate::trace
