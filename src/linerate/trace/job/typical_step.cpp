#include "linerate/trace/job/typical_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::trace {
namespace {

/// The key with the most; of equals the smallest.
template <typename Key>
Key most_common(const std::map<Key, int>& counts) {
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

/// Bytes of the gradient exchanges of each step; one for each exchange of unknown size.
std::vector<std::int64_t> exchanged_by_step(const RankActivity& rank) {
  std::vector<std::int64_t> bytes(rank.steps.size(), 0);
  const auto add = [&bytes](std::int32_t step, CommOp op, std::int64_t n) {
    if (step >= 0 && carries_gradients(op))
      bytes[to_index(step)] += std::clamp<std::int64_t>(n, 1, std::int64_t{1} << 40);
  };
  for (const Communication& c : rank.communications)
    if (c.gradients) add(c.step, c.op, c.bytes);
  if (rank.communications.empty())
    for (const Announced& a : rank.announced) add(a.step, a.op, a.bytes);
  return bytes;
}

/// Which steps end an exchange: an optimizer ran; if none is recorded, gradients were exchanged,
/// not just a loss or a flag. All of them if neither is in the trace.
std::vector<bool> closing_steps(const RankActivity& rank) {
  std::vector<bool> closes;
  for (const StepSpan& s : rank.steps) closes.push_back(s.updates);
  if (std::find(closes.begin(), closes.end(), true) != closes.end()) return closes;
  const std::vector<std::int64_t> bytes = exchanged_by_step(rank);
  const std::int64_t most = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  for (std::size_t i = 0; i < closes.size(); ++i) closes[i] = most == 0 || bytes[i] * 10 > most;
  return closes;
}

bool follows(const RankActivity& rank, std::size_t i) {
  return i > 0 && rank.steps[i].number == rank.steps[i - 1].number + 1;
}

/// Steps from one closing step to the next, as most are apart; those before the first one if it is
/// the only one. Only steps that train.
int steps_to_an_exchange(const RankActivity& rank) {
  std::vector<bool> trains(rank.steps.size(), rank.passes.empty());
  for (const BackwardPass& p : rank.passes) trains[to_index(p.step)] = true;
  const std::vector<bool> closes = closing_steps(rank);
  std::map<int, int> distances;
  int since = 0, first = 0;
  bool whole = false;  // since the closing step before
  for (std::size_t i = 0; i < closes.size(); ++i) {
    if (!follows(rank, i)) since = 0, whole = false;
    since += trains[i];
    if (!closes[i]) continue;
    if (whole) ++distances[since];
    first = std::max(first, since);
    since = 0, whole = true;
  }
  if (!distances.empty()) return std::max(1, most_common(distances));
  return std::max(1, first);
}

Accumulation accumulation_of(const Job& job) {
  std::map<int, int> steps, passes;
  for (const RankActivity& r : job.ranks) {
    if (r.steps.empty()) continue;
    ++steps[steps_to_an_exchange(r)];
    std::map<std::int32_t, int> in_step;
    for (const BackwardPass& p : r.passes) ++in_step[p.step];
    for (const auto& [step, n] : in_step) ++passes[n];
  }
  Accumulation a;
  if (!steps.empty()) a.steps = most_common(steps);
  if (!passes.empty()) a.passes = most_common(passes);
  return a;
}

/// Elements, type, layer, rows.
using Signature = std::vector<std::tuple<std::int64_t, DType, int, std::int64_t>>;

Signature signature_of(const std::vector<GradientRecord>& gradients) {
  Signature s;
  for (const GradientRecord& g : gradients) s.emplace_back(g.elements, g.dtype, g.layer, g.rows);
  return s;
}

/// The last pass of each step that exchanges.
std::vector<const BackwardPass*> last_passes(const RankActivity& rank, const Accumulation& a) {
  const std::vector<std::optional<int>> places = places_of_steps(rank, a);
  std::map<std::int32_t, const BackwardPass*> last;
  for (const BackwardPass& p : rank.passes)
    if (places[to_index(p.step)] == a.steps - 1) last[p.step] = &p;
  std::vector<const BackwardPass*> passes;
  for (const auto& [step, pass] : last) passes.push_back(pass);
  return passes;
}

std::int64_t typical(const std::vector<std::vector<const BackwardPass*>>& ranks,
                     const auto& time_of) {
  std::vector<double> medians;
  for (const std::vector<const BackwardPass*>& passes : ranks) {
    std::vector<double> times;
    for (const BackwardPass* p : passes) times.push_back(static_cast<double>(time_of(*p)));
    if (!times.empty()) medians.push_back(median(times));
  }
  return std::llround(typical_of_ranks(std::move(medians)));
}

}  // namespace

std::string layer_name(const Job& job, int layer) {
  return fmt::format("layer{}", static_cast<int>(job.layers.size()) - 1 - layer);
}

std::string gradient_name(const Job& job, std::size_t gradient) {
  return fmt::format("{}.gradient{}", layer_name(job, job.gradients[gradient].layer), gradient);
}

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double typical_of_ranks(std::vector<double> values) {
  const double most = lower_median(values) * (1 + kAlike);
  std::erase_if(values, [most](double v) { return v > most; });
  return median(values);
}

std::vector<std::optional<int>> places_of_steps(const RankActivity& rank, const Accumulation& a) {
  std::vector<std::optional<int>> places(rank.steps.size());
  if (a.steps == 1) return std::vector<std::optional<int>>(rank.steps.size(), 0);
  const std::vector<bool> closes = closing_steps(rank);
  for (std::size_t i = rank.steps.size(); i-- > 0;) {
    if (closes[i])
      places[i] = a.steps - 1;
    else if (i + 1 < rank.steps.size() && follows(rank, i + 1) && places[i + 1].value_or(0) > 0)
      places[i] = *places[i + 1] - 1;
  }
  return places;
}

std::vector<const BackwardPass*> exchanging_passes(const Job& job, const RankActivity& rank) {
  std::vector<const BackwardPass*> passes = last_passes(rank, job.accumulation);
  const Signature usual = signature_of(job.gradients);
  std::erase_if(passes, [&](const BackwardPass* p) { return signature_of(p->gradients) != usual; });
  return passes;
}

void find_typical_step(Job& job) {
  job.accumulation = accumulation_of(job);
  std::map<Signature, int> counts;
  for (const RankActivity& r : job.ranks)
    for (const BackwardPass* p : last_passes(r, job.accumulation))
      ++counts[signature_of(p->gradients)];
  if (counts.empty()) return;
  const Signature usual = most_common(counts);
  std::vector<std::vector<const BackwardPass*>> ranks;
  const BackwardPass* any = nullptr;
  for (const RankActivity& r : job.ranks) {
    std::vector<const BackwardPass*>& mine = ranks.emplace_back();
    for (const BackwardPass* p : last_passes(r, job.accumulation))
      if (signature_of(p->gradients) == usual) mine.push_back(any = p);
  }
  job.gradients = any->gradients;
  job.layers = any->layers;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < job.gradients.size(); ++i) {
    const std::int64_t ready =
        typical(ranks, [i](const BackwardPass& p) { return p.gradients[i].ready_ns; });
    before = job.gradients[i].ready_ns = std::max(before, ready);
  }
  for (std::size_t i = 0; i < job.layers.size(); ++i) {
    LayerRecord& layer = job.layers[i];
    layer.backward_ns =
        typical(ranks, [i](const BackwardPass& p) { return p.layers[i].backward_ns; });
    if (!layer.block) continue;
    for (const auto rows : {&doc::Block::rows_a, &doc::Block::rows_g})
      (*layer.block).*rows = typical(ranks, [&](const BackwardPass& p) {
        return p.layers[i].block.value_or(*layer.block).*rows;
      });
  }
}

}  // namespace linerate::trace
