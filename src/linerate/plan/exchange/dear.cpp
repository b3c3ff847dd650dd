// dear, dear(bucket=25MiB), dear(layers=4): Zhang et al. 2023, DeAR (arXiv 2302.12445). The
// all-reduce is split: reduce-scatter under backward, all-gather under the next forward pass. The
// authors tune one bucket size by trial; plain dear searches over the cost model.
#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/plan/exchange/fusion.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

// The search is over runs of neighbouring gradients, because it is quadratic in their number.
// Gradients that add up to less than a 96th of all bytes are joined first. Only this, and the
// search's own cap, make it inexact.
struct GradientRuns {
  std::vector<std::int32_t> ends;  // positions, ascending
  DecoupledProblem problem{};      // of runs in place of gradients
};

// By position: the seconds of the forward pass, and of the updates in it, that are left when this
// gradient's parameter is first needed. An example: three layers take 2 ms each forward. The first
// layer needs its parameters with 6 ms left, the second one with 4 and the third one with 2.
// Gradients get ready in the opposite order, so the values ascend with the position. Updates of all
// gradients up to the position come on top, by bytes.
std::vector<double> forward_left(const doc::Workload& w, double total_bytes) {
  const doc::OneRankParts parts = parts_of(w);
  std::vector<double> left;
  left.reserve(w.gradients.size());
  if (layers_are_timed(w)) {
    std::vector<double> from(w.layers.size() + 1, 0.0);
    for (std::size_t l = w.layers.size(); l-- > 0;) from[l] = from[l + 1] + *w.layers[l].forward_s;
    const double scale = from[0] > 0 ? std::min(1.0, parts.forward_s / from[0]) : 0;
    for (const doc::Gradient& g : w.gradients) left.push_back(from[to_index(g.layer)] * scale);
  } else {
    // An untimed forward pass takes half as long as backward, which does twice the work.
    const double whole = w.gradients.back().ready_s;
    const double forward = parts.forward_s > 0 ? parts.forward_s : parts.backward_s / 2;
    for (const doc::Gradient& g : w.gradients)
      left.push_back(whole > 0 ? forward * g.ready_s / whole : 0);
  }
  double bytes = 0;
  for (std::size_t p = 0; p < left.size() && total_bytes > 0; ++p) {
    bytes += static_cast<double>(w.gradients[p].bytes());
    left[p] += parts.update_s * bytes / total_bytes;
  }
  return left;
}

// A run is needed as soon as the first of its gradients is, so it takes the largest
// `forward_left_s`. It is ready with its last gradient. A run has one dtype, and `fence` is the
// first run since the dtype changed.
GradientRuns runs_of(const FusionInput& input) {
  const doc::Workload& w = input.workload;
  constexpr double kMost = 96;  // the search is quadratic in their number
  const auto total = static_cast<double>(w.gradient_bytes());
  const std::vector<double> left = forward_left(w, total);
  const double joined = total / kMost;
  GradientRuns runs;
  DecoupledProblem& p = runs.problem;
  p.backward_s = parts_of(w).backward_s;
  for (std::vector<double>* const numbers : {&p.ready_s, &p.bytes, &p.forward_left_s})
    numbers->reserve(w.gradients.size());
  for (std::vector<std::int32_t>* const numbers : {&p.fence, &runs.ends})
    numbers->reserve(w.gradients.size());
  double dense = 0;
  for (std::size_t at = 0; at < w.gradients.size(); ++at) {
    const doc::Gradient& g = w.gradients[at];
    const auto bytes = static_cast<double>(g.bytes());
    const bool new_dtype = at > 0 && g.dtype != w.gradients[at - 1].dtype;
    if (at == 0 || new_dtype || dense + bytes > joined) {
      const auto run = static_cast<std::int32_t>(runs.ends.size());
      p.fence.push_back(at > 0 && !new_dtype ? p.fence.back() : run);
      runs.ends.push_back(0);
      p.ready_s.push_back(0);
      p.bytes.push_back(0);
      p.forward_left_s.push_back(0);
      dense = 0;
    }
    dense += bytes;
    runs.ends.back() = static_cast<std::int32_t>(at) + 1;
    p.bytes.back() += static_cast<double>(input.form.bytes(g.elements, g.dtype, input.ranks));
    p.ready_s.back() = g.ready_s;
    p.forward_left_s.back() = std::max(p.forward_left_s.back(), left[at]);
  }
  return runs;
}

class Dear : public Exchange {
 public:
  /// Searches by cost if neither a bucket size nor layers are given.
  Dear(std::optional<std::int64_t> bucket_bytes, std::int64_t layers, std::optional<DType> wire)
      : Exchange(wire), bucket_bytes_(bucket_bytes), layers_(layers) {}

  void fuse(const FusionInput& input, const Fusion& out) const override {
    if (layers_ > 0) return by_layers(input.workload, out.graph);
    if (!bucket_bytes_) return cut_by_cost(input, out.graph);
    append_by_limits(input.workload, ready_order(input.workload), {&*bucket_bytes_, 1}, out.graph);
  }
  Schedule schedule() const override { return Schedule::decoupled; }

 private:
  static void cut_by_cost(const FusionInput& input, doc::TaskGraph& graph) {
    const doc::Workload& w = input.workload;
    const GradientRuns runs = runs_of(input);
    const DType wire = input.form.dtype(w.gradients.front().dtype);
    const auto curve = [&](Collective half) {
      return cost::cost_curve(input.cost, half, input.ranks, wire);
    };
    const cost::CostCurve scatter = curve(Collective::reduce_scatter),
                          gather = curve(Collective::all_gather);
    std::int32_t begin = 0;
    for (const std::int32_t run : decoupled_fusion(runs.problem, scatter, gather).ends) {
      const std::int32_t end = runs.ends[to_index(run) - 1];
      append_range(w, begin, end, graph);
      begin = end;
    }
  }

  // Neighbouring layers together; a gradient of unknown layer counts as a layer.
  void by_layers(const doc::Workload& workload, doc::TaskGraph& graph) const {
    const auto& gradients = workload.gradients;
    std::int64_t layers = 1;
    std::size_t begin = 0;
    for (std::size_t l = 1; l <= gradients.size(); ++l) {
      const bool end = l == gradients.size();
      const bool new_dtype = !end && gradients[l].dtype != gradients[l - 1].dtype;
      const bool new_layer =
          !end && (gradients[l].layer < 0 || gradients[l].layer != gradients[l - 1].layer);
      if (!end && !new_dtype && (!new_layer || layers < layers_)) {
        layers += new_layer;
        continue;
      }
      append_range(workload, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(l), graph);
      begin = l;
      layers = 1;
    }
  }

  std::optional<std::int64_t> bucket_bytes_;
  std::int64_t layers_;
};

std::unique_ptr<const Exchange> make_dear(const doc::Component& component) {
  doc::OptionReader options(component);
  std::optional<std::int64_t> bucket;
  if (component.find("bucket")) bucket = options.size("bucket", MiB(25)).value;
  const std::int64_t layers = options.integer("layers", 0);
  const auto wire = options.wire();
  options.finish();
  if (bucket && *bucket <= 0) options.refuse("bucket", "more than 0 bytes");
  if (component.find("layers") && layers < 1) options.refuse("layers", "at least 1");
  if (component.find("layers") && component.find("bucket"))
    options.fail("layers", "give bucket or layers, not both");
  return std::make_unique<Dear>(bucket, layers, wire);
}

}  // namespace

ExchangeLine strategy_dear() {
  return {"dear",
          {make_dear,
           {.plans_by = PlansBy::cost, .needs_summable = true},
           {.options = {"bucket=5MiB", "bucket=50MiB", "layers=4", "wire=fp16"}}},
          "Reduce-scatter during backward, all-gather during the next forward pass.",
          "Zhang et al. 2023, DeAR (arXiv 2302.12445)"};
}

}  // namespace linerate::plan
