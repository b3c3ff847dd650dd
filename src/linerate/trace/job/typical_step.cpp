// One backward pass that stands for all. Passes with the same gradients in the same order form a
// kind, and the most common kind is the job's. A recording may hold other kinds, such as a first
// pass in another order. Each time of the result is then a median twice: over the passes of a rank,
// and over the ranks that nothing held up.
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

/// As most steps have them; without records of passes one a mark.
int passes_to_an_update(const Job& job) {
  std::map<int, int> passes;
  for (const RankActivity& r : job.ranks) {
    std::map<std::int32_t, int> in_step;
    for (const BackwardPass& p : r.passes) ++in_step[p.step];
    for (const auto& [step, n] : in_step) ++passes[n];
  }
  return passes.empty() ? job.accumulation.marks : std::max(1, most_common(passes) / job.updates);
}

/// Elements, type, layer, rows, turn.
using Signature = std::vector<std::tuple<std::int64_t, DType, int, std::int64_t, int>>;

Signature signature_of(const std::vector<GradientRecord>& gradients) {
  Signature s;
  for (const GradientRecord& g : gradients)
    s.emplace_back(g.elements, g.dtype, g.layer, g.rows, g.turn);
  return s;
}

/// The last pass of each step: the one whose gradients are exchanged while it goes on.
std::vector<const BackwardPass*> last_passes(const RankActivity& rank) {
  std::map<std::int32_t, const BackwardPass*> last;
  for (const BackwardPass& p : rank.passes) last[p.step] = &p;
  std::vector<const BackwardPass*> passes;
  for (const auto& [step, pass] : last) passes.push_back(pass);
  return passes;
}

/// The median of `time_of(pass)` over each rank's passes, typical of the ranks, in ns.
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

int turns_of(const Job& job) {
  if (!job.gradients.empty()) return job.gradients.back().turn + 1;
  int last = 0;
  for (const RankActivity& r : job.ranks)
    for (const Communication& c : r.communications)
      if (c.step >= 0 && c.gradients && carries_gradients(c.op)) last = std::max(last, c.turn);
  return last + 1;
}

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

std::vector<const BackwardPass*> exchanging_passes(const Job& job, const RankActivity& rank) {
  std::vector<const BackwardPass*> passes = last_passes(rank);
  const Signature usual = signature_of(job.gradients);
  std::erase_if(passes, [&](const BackwardPass* p) { return signature_of(p->gradients) != usual; });
  return passes;
}

/// Medians of each gradient are taken by themselves, so their order could break by a little. Ready
/// times are therefore raised to that of the gradient before.
void find_typical_step(Job& job) {
  job.accumulation.passes = passes_to_an_update(job);
  std::map<Signature, int> counts;
  for (const RankActivity& r : job.ranks)
    for (const BackwardPass* p : last_passes(r)) ++counts[signature_of(p->gradients)];
  if (counts.empty()) return;
  const Signature usual = most_common(counts);
  std::vector<std::vector<const BackwardPass*>> ranks;
  const BackwardPass* any = nullptr;
  for (const RankActivity& r : job.ranks) {
    std::vector<const BackwardPass*>& mine = ranks.emplace_back();
    for (const BackwardPass* p : last_passes(r))
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
