// Makes a Workload of a model's table. If a total time is given, layers share it by their FLOPs.
// Gradients get ready from the last layer to the first, each when its layer's backward is over.
//
// An example: layers of 1, 2 and 1 GFLOP, and a step of 120 ms. Forward takes 40 ms: 10, 20 and 10.
// Backward takes 80 ms. The first layer needs no gradient of its input, so the weights are 1, 4 and
// 2. The layers take 11, 46 and 23 ms. Gradients are ready after 23, 69 and 80 ms.
#include "linerate/models/workload.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/models/blocks.hpp"

namespace linerate::models {
namespace {

/// One layer of the Workload: a node with parameters and the parameterless nodes after it.
struct Group {
  const Node* node = nullptr;
  double flops = 0;
};

// Work before the first layer counts to the first layer.
std::vector<Group> group(const Description& model) {
  std::vector<Group> groups;
  double before = 0;  // work before the first layer
  for (const Node& node : model.nodes) {
    if (!node.parameters.empty())
      groups.push_back({&node, node.flops + std::exchange(before, 0.0)});
    else if (groups.empty())
      before += node.flops;
    else
      groups.back().flops += node.flops;
  }
  return groups;
}

/// Shares that sum to `total`; equal if no layer has any work.
std::vector<double> split(double total, std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& w : weights)
    w = sum > 0 ? total * w / sum : total / static_cast<double>(weights.size());
  return weights;
}

struct Times {
  std::optional<double> forward_s, backward_s;
};

// The total of forward and backward, split 1 : 2 unless both are given.
Times times_of(const WorkloadOptions& o) {
  if (o.forward_s.has_value() != o.backward_s.has_value())
    throw UsageError("workload: expected the times of forward and backward together");
  if (o.forward_s) return {o.forward_s, o.backward_s};
  if (o.step_s) return {*o.step_s / 3, *o.step_s * 2 / 3};
  return {};
}

// A layer's gradients are ready when its backward is over. Roundings must not make the last one
// later than backward.
void set_times(doc::Workload& w, const Times& times) {
  std::vector<double> forward, backward;
  for (const doc::Layer& layer : w.layers) {
    forward.push_back(layer.flops);
    backward.push_back(backward.empty() ? layer.flops : 2 * layer.flops);
  }
  forward = split(*times.forward_s, std::move(forward));
  backward = split(*times.backward_s, std::move(backward));
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    w.layers[i].forward_s = forward[i];
    w.layers[i].backward_s = backward[i];
  }
  // Backward runs from the last layer to the first; a layer's gradients are ready when it is done.
  double now = 0;
  std::size_t next = w.layers.size();
  for (doc::Gradient& g : w.gradients) {
    while (next > to_index(g.layer)) now += backward[--next];
    g.ready_s = std::min(now, *times.backward_s);
  }
  w.forward_s = times.forward_s;
  w.backward_s = *times.backward_s;
  w.step_s = *times.forward_s + *times.backward_s;
}

}  // namespace

doc::Workload workload(std::string_view name, const WorkloadOptions& options) {
  const Description model = describe(name, options.model);
  const Times times = times_of(options);
  doc::Workload w;
  w.name = model.name;
  w.source = "zoo:" + model.name + " at " + to_text(model.input) +
             (times.forward_s ? ", times split by FLOPs" : ", without times");
  w.batch_per_rank = options.batch;
  w.buffer_bytes = model.buffer_bytes();
  int registration = 0;
  for (const Group& g : group(model)) {
    const int layer = static_cast<int>(w.layers.size());
    doc::Layer& row = w.layers.emplace_back();
    row.name = g.node->name;
    row.kind = name_of(g.node->op);
    row.flops = g.flops;
    for (const TensorSpec& p : g.node->parameters)
      w.gradients.push_back({.name = g.node->name + "." + p.name,
                             .elements = elements_of(p.shape),
                             .layer = layer,
                             .registration = registration++,
                             .rows = p.shape.size() > 1 ? p.shape.front() : 1});
  }
  w.blocks = blocks_of(model, options.batch);
  std::reverse(w.gradients.begin(), w.gradients.end());
  if (times.forward_s) set_times(w, times);
  w.split_by_flops = times.forward_s.has_value();
  return w;
}

std::optional<std::string> zoo_name(std::string_view reference) {
  static constexpr std::string_view prefix = "zoo:";
  if (!reference.starts_with(prefix)) return std::nullopt;
  std::string name(reference.substr(prefix.size()));
  std::replace(name.begin(), name.end(), '_', '-');  // as Python spells inception_v4
  return name;
}

}  // namespace linerate::models
