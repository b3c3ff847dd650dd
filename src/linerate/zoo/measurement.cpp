// Measures T_1 and recorded steps in one run. Blocks of compute-only steps and of recorded steps
// take turns. An example with blocks of 10 and first_ = 20. Before step 20 all ranks run 11 steps
// without an exchange, and 10 of them count. Step 20 trains and is not counted, because it is the
// first after a change. Steps 21 to 30 are recorded. Before step 31 the next block of compute-only
// steps is due. If the machine slows down during the run, both kinds of steps slow down alike.
//
// T_1 is that of the slowest rank, step by step: a synchronous step lasts as long as its slowest
// rank computes.
#include "linerate/zoo/measurement.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::zoo {
namespace {

using torch_adapter::LayerSpan;

std::vector<double> values_of(const std::vector<const double*>& rows, std::size_t column) {
  std::vector<double> values;
  for (const double* row : rows) values.push_back(row[column]);
  return values;
}

double median_of(const std::vector<const double*>& rows, std::size_t column) {
  return median(values_of(rows, column));
}

/// Columns of a row: the parts of a step, then one a gradient, then two a layer.
enum Column : std::size_t { kStep, kForward, kBackward, kUpdate, kGradients };

/// The time in which layers computed. Stretches in which an operator waited for its weight, or a
/// hook computed a factor, are cut out. An example: a layer from 10 to 20 ms waited from 12 to 15
/// ms. It becomes two spans, 10 to 12 and 15 to 20 ms.
std::vector<LayerSpan> without(const std::vector<LayerSpan>& spans, const SpanSet& others) {
  std::vector<LayerSpan> left;
  for (const LayerSpan& span : spans)
    for (const Span& one : difference_of({{span.start_ns, span.end_ns}}, others))
      left.push_back({span.layer, one.start_ns, one.end_ns});
  return left;
}

/// Sets the time that hooks took for each factor, if steps with K-FAC were recorded: medians over
/// steps and ranks.
void time_factors(const doc::Timeline& timeline, doc::Workload& workload) {
  std::map<std::string, std::map<std::pair<int, int>, double>> uses;  // by name; step and rank
  for (const doc::Event& e : timeline.events)
    if (e.kind == doc::TaskKind::factor)
      uses[timeline.names[to_index(e.name)]][{e.step, e.rank}] +=
          Span{e.start_ns, e.end_ns}.seconds();
  const auto median_s = [&](const doc::Block& block, doc::FactorSide side) {
    const std::string& layer = workload.layers[to_index(block.layer)].name;
    std::vector<double> times;
    for (const auto& [step, s] : uses[fmt::format("{}.{}", layer, name_of(side))])
      times.push_back(s);
    return times.empty() ? std::nullopt : std::optional(median(times));
  };
  for (doc::Block& block : workload.blocks) {
    block.factor_a_s = median_s(block, doc::FactorSide::a);
    block.factor_g_s = median_s(block, doc::FactorSide::g);
  }
}

/// What a rank computed in one phase of a step, and for how long messages travelled meanwhile.
struct Phase {
  double compute_s = 0, beside_s = 0;
};
using Phases = std::array<Phase, 2>;  // forward, backward; an update may hold K-FAC's, too
struct StepParts {
  Phases phases;               // of the rank that computed the longest
  double communication_s = 0;  // of the rank that waited least for others
};

std::vector<StepParts> parts_of_steps(const doc::Timeline& timeline) {
  constexpr std::array kKinds = {doc::TaskKind::forward, doc::TaskKind::backward};
  struct Spans {
    std::vector<Span> travelling;
    std::array<std::vector<Span>, kKinds.size()> computing;
  };
  std::map<int, std::map<int, Spans>> by_step;  // and rank
  for (const doc::Event& e : timeline.events) {
    Spans& spans = by_step[e.step][e.rank];
    const auto kind = std::ranges::find(kKinds, e.kind);
    if (e.resource == doc::Resource::network)
      spans.travelling.push_back({e.start_ns, e.end_ns});
    else if (kind != kKinds.end())
      spans.computing[to_index(kind - kKinds.begin())].push_back({e.start_ns, e.end_ns});
  }
  std::vector<StepParts> steps;
  for (auto& [step, ranks] : by_step) {
    double most_s = -1;
    StepParts& parts = steps.emplace_back();
    parts.communication_s = std::numeric_limits<double>::max();
    for (auto& [rank, spans] : ranks) {
      const SpanSet travelling = union_of(std::move(spans.travelling));
      parts.communication_s = std::min(parts.communication_s, seconds_of(travelling));
      Phases phases;
      double all_s = 0;
      for (std::size_t p = 0; p < phases.size(); ++p) {
        const SpanSet computing = union_of(std::move(spans.computing[p]));
        phases[p] = {seconds_of(computing), seconds_of(intersection_of(computing, travelling))};
        all_s += phases[p].compute_s;
      }
      if (all_s > most_s) most_s = all_s, parts.phases = phases;
    }
  }
  return steps;
}

}  // namespace

SpanSet without_layers(const torch_adapter::StepReport& report) {
  std::vector<Span> all;
  for (const auto& s : report.held) all.push_back({s.start_ns, s.end_ns});
  for (const auto& s : report.factors) all.push_back({s.start_ns, s.end_ns});
  return union_of(std::move(all));
}

// A phase that takes B alone takes C = a B + b x if messages travel during x of C: `a` is the
// factor, and 1 / (1 - b) the slowdown. Phases differ in x, so least squares over both find them.
// Messages that travel during less than a fifth of C tell nothing of b, because C is not known to
// less than some percent.
//
// An example: forward takes 150 ms alone and 153 among ranks, nothing travels meanwhile. Backward
// takes 320 ms alone, and 450 while messages travel during 250. So a = 1.02, and b = (450 - 326) /
// 250 = .49: computing next to messages takes twice as long.
std::optional<doc::SeveralRanks> several_ranks_of(const doc::Timeline& timeline,
                                                  const doc::Workload& workload) {
  const std::vector<StepParts> steps = parts_of_steps(timeline);
  if (timeline.ranks < 2 || steps.empty()) return std::nullopt;
  const std::array alone = {*workload.forward_s, workload.backward_s};
  double bb = 0, bx = 0, xx = 0, bc = 0, xc = 0, computed = 0, beside = 0;
  for (std::size_t p = 0; p < alone.size(); ++p) {
    const auto middle = [&](double Phase::*part) {
      std::vector<double> values;
      for (const StepParts& step : steps) values.push_back(step.phases[p].*part);
      return median(values);
    };
    const double b = alone[p], c = middle(&Phase::compute_s), x = middle(&Phase::beside_s);
    bb += b * b, bx += b * x, xx += x * x, bc += b * c, xc += x * c;
    computed += c, beside += x;
  }
  if (bb == 0) return std::nullopt;
  std::vector<double> communication;
  for (const StepParts& step : steps) communication.push_back(step.communication_s);
  const double communication_s = median(communication);
  // Where the solution lies outside what is possible, the best one is at the edge.
  const double alone_factor = std::max(1.0, bc / bb);
  if (beside < computed / 5) return doc::SeveralRanks{alone_factor, communication_s};
  constexpr double kMostLost = 0.9;        // of the time next to messages
  const double apart = bb * xx - bx * bx;  // 0: both have the same share of time next to messages
  double factor = apart > 1e-3 * bb * xx ? std::max(1.0, (bc * xx - xc * bx) / apart) : 1;
  double lost = std::min((xc - factor * bx) / xx, kMostLost);
  if (lost < 0) factor = alone_factor, lost = 0;
  return doc::SeveralRanks{factor, communication_s, 1 / (1 - lost)};
}

// The step is at least the sum of its parts, so the tail is never negative. The interval is widened
// if that moves the step out of it.
void set_step(doc::Bounded step_s, double forward_s, double backward_s, double update_s,
              doc::Workload& w) {
  w.forward_s = forward_s;
  w.backward_s = backward_s;
  w.update_s = update_s;
  w.step_s = std::max(step_s.value, forward_s + backward_s + update_s);
  w.step_low_s = std::min(step_s.low_or_value(), *w.step_s);
  w.step_high_s = std::max(step_s.high_or_value(), *w.step_s);
  // It is rounded in another order than that sum: the rest may be a rounding below 0.
  w.tail_s = std::max(0.0, *w.step_s - forward_s - backward_s - update_s);
}

Measurement::Measurement(comm::Communicator& communicator,
                         const torch_adapter::NamedTensors& parameters,
                         const models::Description& model, std::int64_t first_step,
                         std::int64_t last_step, std::int64_t wanted)
    : communicator_(communicator),
      model_(model),
      parameters_(parameters),
      recorder_(communicator, exec::agree_origin(communicator), "trained"),
      sampler_({.traffic = [&communicator] { return communicator.traffic(); }}),
      timer_(parameters) {
  const std::int64_t steps = last_step - first_step;
  block_ = std::clamp<std::int64_t>(steps / 4, 1, kBlock);
  // Strategies plan again after a few steps: leaves a fifth of a short run, 20 steps of a long one.
  first_ = first_step + std::min<std::int64_t>(20, steps / 5);
  blocks_ = std::min((wanted + block_ - 1) / block_, (last_step - first_) / (block_ + 1));
  if (blocks_ < 1)
    throw on_every_rank(UsageError("--record: expected a run of at least 2 steps, found " +
                                   std::to_string(steps) + "; raise --steps or --epochs"));
  for (std::size_t layer = 0; layer < timer_.layers().size(); ++layer) {
    std::vector<std::string> own;
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      if (timer_.layer_of_parameter()[p] == static_cast<int>(layer))
        own.push_back(parameters_[p].first);
    layer_names_.push_back(recorder_.name_id(timer_.layers()[layer]));
    layer_sets_.push_back(recorder_.set_id(own));
  }
}

// Gradients in the order in which they got ready, joined by layer. A layer whose gradients do not
// follow one another has several entries. Gradients that never got ready are left out.
std::vector<std::pair<std::size_t, std::int64_t>> Measurement::backward_layers(
    const torch_adapter::StepSpans& spans) const {
  std::vector<std::size_t> order(spans.ready_ns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return spans.ready_ns[a] < spans.ready_ns[b]; });
  std::vector<std::pair<std::size_t, std::int64_t>> layers;
  for (const std::size_t p : order) {
    if (spans.ready_ns[p] < 0) continue;
    const auto layer = to_index(timer_.layer_of_parameter()[p]);
    if (layers.empty() || layers.back().first != layer) layers.emplace_back(layer, 0);
    layers.back().second = spans.ready_ns[p];
  }
  return layers;
}

bool Measurement::block_due(std::int64_t step) const {
  return step >= first_ && (step - first_) % (block_ + 1) == 0 &&
         (step - first_) / (block_ + 1) < blocks_;
}

bool Measurement::records(std::int64_t step) const {
  return step >= first_ && step < first_ + blocks_ * (block_ + 1) && !block_due(step);
}

bool Measurement::is_whole() const {
  return static_cast<std::int64_t>(recorded_.size()) == blocks_ * block_;
}

bool Measurement::is_worth_writing() const {
  const std::size_t steps = recorded_.size();
  return is_whole() || (steps % to_index(block_) == 0 && 10 * steps >= 11 * in_result_);
}

// Adds the step's events in the shape in which predictions have them: one a layer, forward and
// backward. An event of backward lasts until the last gradient of its layer.
void Measurement::add_recorded(std::int64_t step, const StepProbe& probe) {
  recorded_.push_back(static_cast<std::int32_t>(step));
  recorder_.add_step(static_cast<std::int32_t>(step), probe.start_ns, probe.end_ns,
                     probe.report.variant);
  const auto add = [&](doc::TaskKind kind, doc::Resource resource, std::int32_t name,
                       std::int32_t set, std::int64_t from, std::int64_t to) {
    if (to <= from) return;
    recorder_.add({.kind = kind,
                   .resource = resource,
                   .name = name,
                   .set = set,
                   .start_ns = from,
                   .end_ns = to});
  };
  const torch_adapter::StepSpans& spans = probe.spans;
  add(doc::TaskKind::host, doc::Resource::host, -1, -1, probe.start_ns, spans.forward_start_ns);
  const auto add_layers = [&](doc::TaskKind kind, const std::vector<LayerSpan>& layers) {
    for (const LayerSpan& span : layers) {
      const bool known = span.layer >= 0;
      const auto layer = to_index(span.layer);
      add(kind, doc::Resource::compute, known ? layer_names_[layer] : -1,
          known ? layer_sets_[layer] : -1, span.start_ns, span.end_ns);
    }
  };
  const SpanSet others = without_layers(probe.report);
  add_layers(doc::TaskKind::forward, without(spans.forward, others));
  // One event a layer, until the last of its gradients that are ready in a row: the layers of a
  // predicted Timeline.
  std::vector<LayerSpan> backward;
  std::int64_t before = spans.backward_start_ns;
  for (const auto& [layer, ready_ns] : backward_layers(spans)) {
    backward.push_back({static_cast<int>(layer), before, ready_ns});
    before = ready_ns;
  }
  backward.push_back({-1, before, probe.exchange_ns});
  add_layers(doc::TaskKind::backward, without(backward, others));
}

// Appends one step of this rank as numbers, which travel to all ranks: see Column. All rows are one
// vector, because small blocks that stay between large ones that go keep the C library from using
// these again. The steps to be measured then pay for new memory.
void Measurement::add_compute_only(const StepProbe& p) {
  const torch_adapter::StepSpans& spans = p.spans;
  const std::size_t layers = timer_.layers().size();
  for (const double part : {Span{p.start_ns, p.end_ns}.seconds(),
                            Span{spans.forward_start_ns, spans.forward_end_ns}.seconds(),
                            Span{spans.backward_start_ns, p.exchange_ns}.seconds(),
                            Span{p.update_ns, p.end_ns}.seconds()})
    alone_.push_back(part);
  for (const std::int64_t ready : spans.ready_ns)
    alone_.push_back(Span{spans.backward_start_ns, ready < 0 ? p.exchange_ns : ready}.seconds());
  const std::size_t at = alone_.size();
  alone_.resize(at + 2 * layers, 0);
  for (const LayerSpan& s : spans.forward)
    alone_[at + to_index(s.layer)] += Span{s.start_ns, s.end_ns}.seconds();
  for (const LayerSpan& s : spans.backward)
    alone_[at + layers + to_index(s.layer)] += Span{s.start_ns, s.end_ns}.seconds();
}

// Each step counts by the row of the rank that was slowest in it. A synchronous step lasts as long
// as its slowest rank computes. Every number is then the median over the steps. An example: three
// ranks take 90, 110 and 100 ms for a step. The parts of rank 1 count, and not the largest of each
// part.
//
// `gathered` has the rows of rank 0, then those of rank 1, and so on.
doc::Workload Measurement::workload_of(const std::vector<double>& gathered) const {
  const std::size_t layers = timer_.layers().size(), parameters = parameters_.size();
  const std::size_t at = kGradients + parameters, columns = at + 2 * layers;
  const std::size_t ranks = to_index(communicator_.size());
  const std::size_t steps = alone_.size() / columns;
  std::vector<const double*> rows;
  for (std::size_t s = 0; s < steps; ++s) {
    const double* slowest = gathered.data() + s * columns;
    for (std::size_t r = 1; r < ranks; ++r) {
      const double* row = gathered.data() + (r * steps + s) * columns;
      if (row[kStep] > slowest[kStep]) slowest = row;
    }
    rows.push_back(slowest);
  }
  doc::Workload w;
  w.name = model_.name;
  // The median, and the interval that holds nine of ten steps. Another run's step is as uncertain
  // as a step of this run, because machines that others use drift for longer than a run lasts.
  const std::vector<double> all = values_of(rows, kStep);
  set_step({median(all), quantile(all, 0.05), quantile(all, 0.95)}, median_of(rows, kForward),
           median_of(rows, kBackward), median_of(rows, kUpdate), w);

  for (std::size_t l = 0; l < layers; ++l) {
    doc::Layer& layer = w.layers.emplace_back();
    layer.name = timer_.layers()[l];
    layer.forward_s = median_of(rows, at + l);
    layer.backward_s = median_of(rows, at + layers + l);
    for (const models::Node& node : model_.nodes)
      if (node.name == layer.name) {
        layer.kind = models::name_of(node.op);
        layer.flops = node.flops;
      }
  }
  for (std::size_t p = 0; p < parameters; ++p) {
    doc::Gradient& g = w.gradients.emplace_back();
    const at::Tensor& tensor = parameters_[p].second;
    g.name = parameters_[p].first;
    g.elements = tensor.numel();
    g.rows = tensor.dim() > 1 && tensor.numel() > 0 ? tensor.size(0) : 1;
    g.layer = timer_.layer_of_parameter()[p];
    g.registration = static_cast<int>(p);
    g.ready_s = std::min(median_of(rows, kGradients + p), w.backward_s);
  }
  std::ranges::sort(w.gradients, [](const doc::Gradient& a, const doc::Gradient& b) {
    return a.ready_s != b.ready_s ? a.ready_s < b.ready_s : a.registration > b.registration;
  });
  return w;
}

// Gathers rows and events of all ranks, and makes both documents on rank 0. The Recorder has events
// of every step; those of steps that do not count are dropped.
std::optional<Measurement::Result> Measurement::result(std::int64_t batch,
                                                       std::int64_t buffer_bytes, bool last) {
  if (alone_.empty() || recorded_.empty()) return std::nullopt;
  in_result_ = recorded_.size();
  std::vector<double> all(alone_.size() * to_index(communicator_.size()));
  communicator_.all_gather(comm::buffer(alone_), comm::buffer(all), "compute-only steps")->wait();
  Result result;
  result.workload = workload_of(all);
  // The blocks of layers that were timed, with their layers' numbers among these.
  const auto& layers = timer_.layers();
  std::vector<std::string> names;
  for (const models::Node& node : model_.nodes)
    if (!node.parameters.empty()) names.push_back(node.name);
  for (doc::Block block : models::blocks_of(model_, batch)) {
    const auto timed = std::ranges::find(layers, names[to_index(block.layer)]);
    if (timed == layers.end()) continue;
    block.layer = static_cast<int>(timed - layers.begin());
    result.workload.blocks.push_back(block);
  }
  result.workload.batch_per_rank = batch;
  result.workload.buffer_bytes = buffer_bytes;
  if (last)
    for (doc::Counter& counter : sampler_.stop()) recorder_.add(std::move(counter));
  doc::Timeline timeline = recorder_.timeline();
  if (last) recorder_.keep(false), recorder_.forget();
  // The executor records every step; only whole, counted ones are of use.
  const std::set<std::int32_t> counted(recorded_.begin(), recorded_.end());
  std::erase_if(timeline.events, [&](const doc::Event& e) { return !counted.contains(e.step); });
  timeline.line_rate_bytes_per_s = sampler_.line_rate_bytes_per_s();
  timeline.one_rank_step_s = result.workload.step_s;
  result.timeline = exec::gather_timeline(communicator_, timeline);
  if (communicator_.rank() != 0) return std::nullopt;
  time_factors(result.timeline, result.workload);
  result.workload.several_ranks = several_ranks_of(result.timeline, result.workload);
  std::vector<double> lengths;
  for (const doc::Step& step : result.timeline.steps) lengths.push_back(step.seconds());
  result.recorded_step_s = median(lengths);
  result.steps = static_cast<std::int64_t>(recorded_.size());
  return result;
}

}  // namespace linerate::zoo
