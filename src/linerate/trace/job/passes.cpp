// Notes on gradient accumulation. A step of four passes should exchange once, in the last pass. If
// all four exchange, no_sync() is missing. If only the first does, gradients of the others are
// never summed, and the ranks' models drift apart.
#include "linerate/trace/job/passes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/job/dense_bytes.hpp"
#include "linerate/trace/job/exchange_sets.hpp"

namespace linerate::trace {
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
      const std::int64_t most = *std::max_element(sent.begin(), sent.end());
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

}  // namespace linerate::trace
