// Makes a Workload of a model's table. If a total time is given, layers share it by their FLOPs.
// Gradients get ready from the last layer to the first, each when its layer's backward is over.
//
// An example: layers of 1, 2 and 1 GFLOP, and a step of 120 ms. Forward takes 40 ms: 10, 20 and 10.
// Backward takes 80 ms. The first layer needs no gradient of its input, so the weights are 1, 4 and
// 2. The layers take 11, 46 and 23 ms. Gradients are ready after 23, 69 and 80 ms.
#include "linerate/models/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/models/description.hpp"

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

// Reads -w: a file, zoo:NAME or params:SIZE. A file has its own times, which --step-time scales. A
// model has shapes and no times, so it needs --step-time. A size has neither; its gradients count
// as equal tensors that get ready evenly.

/// Seconds. `what` says why they have to be given.
double step_time_of(const WorkloadSource& source, std::string_view what) {
  if (source.step_time) return source.step_time->value;
  throw UsageError(fmt::format("-w {}: {}; give --step-time of one device, such as 120ms",
                               source.reference, what));
}

doc::Workload from_zoo(const std::string& name, const WorkloadSource& source) {
  static_cast<void>(catalogue().at(name));  // refuses a name that no model has
  WorkloadOptions options;
  options.step_s = step_time_of(source, "a model has shapes but no times");
  if (!source.input.empty()) options.model.input = parse_shape(source.input);
  if (source.classes > 0) options.model.classes = source.classes;
  options.batch = source.batch;
  doc::Workload w = workload(name, options);
  if (source.step_time_covers_step) w.step_s = options.step_s;
  return w;
}

/// "30.8M", "7B", or a plain number.
std::int64_t parse_count(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMBT";
  std::string_view number = trim(text);
  double unit = 1;
  if (!number.empty())
    if (const auto at = kSuffixes.find(number.back()); at != std::string_view::npos) {
      unit = std::pow(1e3, static_cast<double>(at) + 1);
      number.remove_suffix(1);
    }
  constexpr double kMostParameters = 1e14;
  double count = 0;
  try {
    count = std::round(unit * parse_number(number));
  } catch (const UsageError&) {
  }
  if (!(count >= 1 && count <= kMostParameters))
    throw UsageError(
        fmt::format("expected a number of parameters such as 30.8M or 7B, found \"{}\"", text));
  return static_cast<std::int64_t>(count);
}

// The Workload of a model whose size alone is known. It has as many tensors as networks of 50 to
// 150 layers. The number matters to strategies that send each tensor alone.
doc::Workload from_size(std::string_view size, const WorkloadSource& source) {
  constexpr std::int64_t kTensors = 100;
  const double step_s = step_time_of(source, "a size has no times");
  const std::size_t comma = size.find(',');
  DType dtype = DType::f32;
  std::int64_t parameters = 0;
  try {
    parameters = parse_count(size.substr(0, comma));
    if (comma != std::string_view::npos) dtype = parse_dtype(trim(size.substr(comma + 1)));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("-w {}: {}", source.reference, e.what()));
  }
  doc::Workload w;
  w.name = fmt::format("{} parameters", trim(size.substr(0, comma)));
  w.source = source.reference;
  w.batch_per_rank = source.batch;
  w.forward_s = step_s / 3, w.backward_s = step_s * 2 / 3;
  const std::int64_t tensors = std::min(kTensors, parameters);
  for (std::int64_t i = 0; i < tensors; ++i)
    w.gradients.push_back(
        {.name = fmt::format("part {}", i),
         .elements = parameters * (i + 1) / tensors - parameters * i / tensors,
         .dtype = dtype,
         .registration = static_cast<int>(tensors - 1 - i),
         .ready_s = w.backward_s * static_cast<double>(i + 1) / static_cast<double>(tensors)});
  if (source.step_time_covers_step) w.step_s = step_s;
  w.step_origin = fmt::format(
      "as --step-time says; only the model's size is known, so its {} gradients count as {} "
      "tensors "
      "of one size that get ready evenly over backward, two thirds of the step",
      name_of(dtype), tensors);
  return w;
}

/// The Workload with this step, in seconds. A step that was known is scaled with all its parts. A
/// step that was not known is completed: the rest becomes the forward pass.
doc::Workload with_step(doc::Workload w, double step_s, bool covers_step) {
  const bool known = w.step_s || w.forward_s;
  const doc::OneRankParts parts = parts_of(w);
  const double recorded_s = covers_step ? w.one_rank_step_s() : parts.forward_s + parts.backward_s;
  if (known && recorded_s > 0) {
    w = doc::with_times(std::move(w), step_s / recorded_s);
  } else if (step_s < w.backward_s) {
    throw UsageError(fmt::format("--step-time: {} is less than the Workload's backward pass of {}",
                                 format_time(step_s), format_time(w.backward_s)));
  } else {
    (covers_step ? w.step_s : w.forward_s) = covers_step ? step_s : step_s - w.backward_s;
  }
  w.step_low_s.reset(), w.step_high_s.reset();
  w.step_origin = "as --step-time says";
  return w;
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

doc::Workload load_workload(const WorkloadSource& source) {
  if (source.reference.empty())
    throw UsageError("-w: expected a Workload, found none; give a file, zoo:NAME or params:SIZE");
  if (source.step_time && !(source.step_time->value > 0))
    throw UsageError(fmt::format("--step-time: expected more than 0 s, found {}",
                                 format_time(source.step_time->value)));
  if (const auto name = zoo_name(source.reference)) return from_zoo(*name, source);
  constexpr std::string_view kSize = "params:";
  const bool is_size = source.reference.starts_with(kSize);
  if (is_size && source.input.empty() && source.classes == 0)
    return from_size(std::string_view(source.reference).substr(kSize.size()), source);
  if (!source.input.empty() || source.classes > 0 || source.batch > 0)
    throw UsageError(fmt::format("--input, --classes and --batch go with -w zoo:NAME; {}",
                                 is_size ? "a size takes --batch alone" : "a file has its own"));
  doc::Workload w = source.held ? *source.held : doc::load_workload(source.reference);
  if (!source.step_time) return w;
  return with_step(std::move(w), source.step_time->value, source.step_time_covers_step);
}

}  // namespace linerate::models
