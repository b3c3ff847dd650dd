// Reads a Plan once for CurvatureExchange: which ranks average and precondition each layer, and
// where each factor, inverse or direction lies in the payloads.
//
// Example: a payload of the inverses of factors 4, 5 and 7 with 10, 20 and 30 elements. They begin
// at 0, 10 and 30. Three statuses follow, so the payload has 63 elements, and factor 5's status is
// the second from the end.
#include "linerate/torch_adapter/kfac/curvature_plan.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/torch_adapter/kfac/conv_products.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_streams/event_clock.hpp"
#include "linerate/torch_streams/torch_stream_device.hpp"

namespace linerate::torch_adapter {

CurvaturePlan::CurvaturePlan(std::shared_ptr<const doc::Plan> made, std::size_t blocks,
                             const ElementsOf& sizes)
    : plan(std::move(made)), preconditioning(blocks), averaging(blocks) {
  for (const doc::TaskGraph& graph : plan->variants) {
    note_ranks(graph);
    note_parts(graph, sizes);
    is_late = is_late || !graph.next_step.empty();
  }
}

void CurvaturePlan::note_ranks(const doc::TaskGraph& graph) {
  for (const doc::Task& task : graph.tasks) {
    const std::string_view operation = plan->operation_name(task);
    const bool averages = operation == "average-factors";
    if (task.subject == doc::Subject::payloads || (!averages && operation != "precondition"))
      continue;
    const std::int32_t last = doc::block_of_factor(task.last);
    for (std::int32_t b = doc::block_of_factor(task.first); b <= last; ++b) {
      std::vector<std::int32_t>& ranks = (averages ? averaging : preconditioning)[to_index(b)];
      if (!ranks.empty()) continue;
      for (const auto& part : plan->group_of(task).parts)
        ranks.insert(ranks.end(), part.begin(), part.end());
    }
  }
}

/// Members stand one after the other in their payload. After them a payload of inverses has a
/// status for each member, in the same order, so the last member's status is the last element.
void CurvaturePlan::note_parts(const doc::TaskGraph& graph, const ElementsOf& sizes) {
  Variant& variant = variants.emplace_back();
  variant.payloads.resize(graph.payloads.size());
  variant.inverses.resize(2 * averaging.size());
  variant.directions.resize(averaging.size());
  for (std::size_t p = 0; p < graph.payloads.size(); ++p) {
    const doc::Payload& payload = graph.payloads[p];
    const bool inverses = doc::holds_inverses(payload.content);
    const bool directions = payload.content == doc::Content::directions;
    if (!inverses && !directions && payload.content != doc::Content::factors) continue;
    std::int64_t begin = 0;
    for (std::int32_t m = payload.begin; m < payload.end; ++m) {
      const std::int32_t member = graph.members[to_index(m)];
      const std::int64_t elements = sizes(payload.content, member);
      const Part part{static_cast<std::int32_t>(p), member, begin, elements, payload.end - m};
      variant.payloads[p].push_back(part);
      if (inverses) variant.inverses[to_index(member)] = part;
      if (directions) variant.directions[to_index(member)] = part;
      begin += elements;
    }
  }
}

const CurvaturePlan::Variant& CurvaturePlan::of(const doc::TaskGraph& graph) const {
  const auto index = &graph - plan->variants.data();
  LINERATE_CHECK(index >= 0 && index < std::ssize(variants), "a graph of another plan");
  return variants[to_index(index)];
}

// Takes the times of a measured step apart: the forward pass of each layer, each factor, and each
// inverse. A layer's forward time is from its input to the next layer's input, or to the first
// gradient, less the time of its factor A.
//
// Example in ms: the inputs of layers 0, 1 and 2 are seen at 0, 4 and 9, and each factor A takes 1.
// The first gradient comes at 12. So the forward passes take 3, 4 and 2.

namespace {

constexpr std::size_t kA = to_index(doc::FactorSide::a);
constexpr std::size_t kG = to_index(doc::FactorSide::g);

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// The times of a block's factors, by side, in nanoseconds.
struct Times {
  std::array<std::int64_t, 2> began = {-1, -1};  // the first use
  std::array<std::int64_t, 2> took = {0, 0};     // of all uses
};

std::vector<Times> times_of(std::span<const FactorSpan> factors, std::size_t blocks) {
  std::vector<Times> times(blocks);
  for (const FactorSpan& span : factors) {
    Times& t = times.at(to_index(doc::block_of_factor(span.factor)));
    const auto side = to_index(doc::side_of_factor(span.factor));
    std::int64_t& began = t.began[side];
    began = began < 0 ? span.start_ns : std::min(began, span.start_ns);
    t.took[side] += span.end_ns - span.start_ns;
  }
  return times;
}

std::vector<double> took(const std::vector<Times>& times, std::size_t side) {
  std::vector<double> all;
  for (const Times& t : times) all.push_back(t.began[side] < 0 ? -1 : seconds(t.took[side]));
  return all;
}

/// Layers with an observed input, in order of time.
std::vector<std::size_t> forward_order(const std::vector<Times>& times) {
  std::vector<std::size_t> order(times.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t b) { return times[b].began[kA] < 0; });
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return times[x].began[kA] < times[y].began[kA]; });
  return order;
}

std::int64_t first_gradient(const std::vector<Times>& times) {
  std::int64_t first = -1;
  for (const Times& t : times)
    if (t.began[kG] >= 0 && (first < 0 || t.began[kG] < first)) first = t.began[kG];
  return first;
}

}  // namespace

replan::CurvatureTimes curvature_times(std::span<const FactorSpan> factors, std::size_t blocks,
                                       std::vector<double> inverse_s) {
  const std::vector<Times> times = times_of(factors, blocks);
  replan::CurvatureTimes result;
  result.forward_s.assign(blocks, -1);
  const std::vector<std::size_t> order = forward_order(times);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Times& t = times[order[i]];
    const std::int64_t end =
        i + 1 < order.size() ? times[order[i + 1]].began[kA] : first_gradient(times);
    if (end < 0) continue;
    // A layer that is used again later has its other uses' time in `took`.
    result.forward_s[order[i]] = seconds(std::max<std::int64_t>(end - t.began[kA] - t.took[kA], 0));
  }
  result.factor_a_s = took(times, kA);
  result.factor_g_s = took(times, kG);
  result.inverse_s = std::move(inverse_s);
  return result;
}

double factors_between_s(std::span<const FactorSpan> factors, std::int64_t from_ns,
                         std::int64_t until_ns) {
  std::int64_t ns = 0;
  for (const FactorSpan& span : factors)
    if (span.start_ns >= from_ns && span.start_ns < until_ns) ns += span.end_ns - span.start_ns;
  return seconds(ns);
}

// Measures the cost of K-FAC's work on this machine in four short runs. They are a small and a
// large inverse, a product for a factor, and one for a direction. Planners price factors, inverses
// and directions by these. All ranks use the mean over ranks, so that they make the same plan.

namespace {

constexpr std::int64_t kSmall = 64, kLargest = 1024;

/// Least of three runs, by the clock of where tensors lie.
class LeastTime {
 public:
  explicit LeastTime(c10::Device device) : clock_(torch_streams::make_tensor_clock(device)) {
    clock_->follow(torch_streams::make_tensor_device(device, 1, {})->streams());
  }
  template <typename Work>
  double of(Work&& work) {
    double least_ns = 0;
    for (int run = 0; run < 3; ++run) {
      clock_->set(0, 0);
      work();
      clock_->set(1, 0);
      clock_->wait_for(1);
      const double taken_ns = std::max(clock_->ns_between(0, 1), 1.0);
      least_ns = run == 0 ? taken_ns : std::min(least_ns, taken_ns);
    }
    return least_ns * 1e-9;
  }

 private:
  std::unique_ptr<torch_streams::TensorClock> clock_;
};

/// Times one inverse. The matrix has different eigenvalues, because eigendecompositions take longer
/// then.
double inverse_s(std::int64_t d, const at::TensorOptions& where, InverseMethod method,
                 LeastTime& least) {
  const at::Tensor matrix =
      at::add(at::diag(at::arange(1, d + 1, where)), at::ones({d, d}, where)).unsqueeze(0);
  const at::Tensor damping = at::full({1}, 0.1, where);
  return least.of([&] {
    method == InverseMethod::eigen ? symmetric_eigen(matrix) : damped_inverses(matrix, damping);
  });
}

double cube(std::int64_t d) { return static_cast<double>(d * d * d); }

}  // namespace

/// An inverse takes a fixed time plus one that grows as the cube of the size, so two sizes give
/// both. For example 64 rows take 0.1 ms and 1024 rows take 40 ms. The cubes differ by 1.07e9, so a
/// cube costs 37 ps and the fixed part is 0.09 ms.
doc::SecondOrderCost probe_second_order(comm::Communicator& communicator,
                                        const std::vector<CurvatureBlock::Shape>& shapes,
                                        const at::TensorOptions& where, InverseMethod method) {
  const c10::NoGradGuard no_grad;
  LeastTime least(where.device());
  std::int64_t large = 2 * kSmall;
  for (const CurvatureBlock::Shape& shape : shapes)
    if (shape.kind == BlockKind::kronecker) large = std::max({large, shape.a, shape.g});
  large = std::min(large, kLargest);
  const at::Tensor rows = at::ones({large, large}, where), sum = at::zeros({large, large}, where);
  std::array<double, 4> seconds = {
      inverse_s(kSmall, where, method, least), inverse_s(large, where, method, least),
      least.of([&] { add_symmetric_product(rows, 1, sum); }),
      least.of([&] { static_cast<void>(times_transpose(rows, rows)); })};
  communicator.all_reduce(comm::buffer(seconds), comm::Reduce::sum, "costs of second-order steps")
      ->wait();
  for (double& s : seconds) s /= communicator.size();
  doc::SecondOrderCost cost;
  cost.inverse_s_per_cube = std::max(0.0, (seconds[1] - seconds[0]) / (cube(large) - cube(kSmall)));
  cost.inverse_fixed_s = std::max(0.0, seconds[0] - cost.inverse_s_per_cube * cube(kSmall));
  cost.factor_flops_per_s = 2 * cube(large) / seconds[2];
  cost.precondition_flops_per_s = 2 * cube(large) / seconds[3];
  return cost;
}

// A strategy's text and the preconditioner's options may both set the same thing. An option that
// was built in (kinds of layers, the inverse's method) must agree with the text. A tuned option
// (intervals, damping, decay) may stand in either, or be the same in both. The Plan depends on some
// of them, and those are written into the strategy's text, so that all ranks and the simulator plan
// by them.
//
// Example: the text says kfac(spd, damping=0.01), and the options say inverse_interval = 20 and
// method = eigen. The text becomes kfac(spd, damping=0.01, inverse=eigen, inverses=20), by which
// all ranks plan. Had the options said damping = 0.03, shared_kfac() would throw.

namespace {

bool has_kind(const Preconditioner& preconditioner, doc::BlockKind kind) {
  const Blocks& blocks = preconditioner.blocks();
  return std::any_of(blocks.begin(), blocks.end(),
                     [kind](const auto& block) { return block->shape().kind == kind; });
}

/// Names an option, so that the Plan has it.
void say(doc::Component& component, const char* option, const std::string& value) {
  if (!component.find(option)) component.options.emplace_back(option, value);
}

[[noreturn]] void refuse(const char* option, const std::string& in_text, const char* field,
                         const std::string& in_options) {
  throw UsageError(
      fmt::format("K-FAC: the strategy says {}={}, but the preconditioner's option `{}` {}; say it "
                  "in one of them, or the same in both",
                  option, in_text, field, in_options));
}

/// An option that the preconditioner was made with, which cannot change any more.
struct Built {
  const char* option;
  const char* field;
  std::string value;
  bool in_plan;  // the Plan must name it: a text without it means another value
};

std::vector<Built> build_of(const Preconditioner& preconditioner) {
  const KfacOptions& o = preconditioner.options();
  const auto on = [](bool yes) { return std::string(yes ? "on" : "off"); };
  const bool norms = has_kind(preconditioner, doc::BlockKind::unit_wise),
             words = has_kind(preconditioner, doc::BlockKind::embedding),
             eigen = o.method == InverseMethod::eigen;
  std::vector<Built> all;
  // Layers that are not there can be said to be left out, or taken if they were.
  if (norms || !o.norms) all.push_back({"norms", "norms", on(o.norms), norms});
  if (words || !o.embeddings) all.push_back({"embeddings", "embeddings", on(o.embeddings), words});
  all.push_back({"inverse", "method", eigen ? "eigen" : "cholesky", eigen});
  all.push_back({"largest", "largest_factor", fmt::format("{}", o.largest_factor),
                 o.largest_factor != plan::kLargestFactor});
  constexpr std::array kFishers{"empirical", "mc"};  // as Fisher has them
  all.push_back({"fisher", "fisher", kFishers.at(to_index(o.fisher)), false});
  all.push_back({"subsample", "conv_subsampling", fmt::format("{}", o.conv_subsampling), false});
  return all;
}

/// An option that may stand in the text or in the options.
struct Tuned {
  const char* option;
  const char* field;
  std::optional<ScheduledValue> KfacOptions::*value;
  bool in_plan;  // the Plan depends on it
};
constexpr std::array kTuned{
    Tuned{"accumulate", "accumulate", &KfacOptions::accumulate, false},
    Tuned{"factors", "factor_interval", &KfacOptions::factor_interval, true},
    Tuned{"inverses", "inverse_interval", &KfacOptions::inverse_interval, true},
    Tuned{"damping", "damping", &KfacOptions::damping, false},
    Tuned{"decay", "decay", &KfacOptions::decay, false},
    Tuned{"kl", "kl_clip", &KfacOptions::kl_clip, false}};

double number_in(const plan::Kfac& kfac, std::string_view option) {
  if (option == "accumulate") return static_cast<double>(kfac.accumulate.value_or(1));
  if (option == "factors") return static_cast<double>(kfac.factor_interval);
  if (option == "inverses") return static_cast<double>(kfac.inverse_interval);
  if (option == "damping") return kfac.damping;
  if (option == "decay") return kfac.decay;
  return kfac.clips ? kfac.kl : 0;
}

/// Whether the strategy names it; the clip has two names.
bool is_named(const doc::Component& component, std::string_view option) {
  const std::string* const clip = component.find("clip");
  return component.find(option) || (option == "kl" && clip && *clip == "off");
}

void require_said_once(const doc::Component& component, const plan::Kfac& kfac,
                       const KfacOptions& said) {
  for (const Tuned& tuned : kTuned) {
    const auto& value = said.*tuned.value;
    if (!value || !is_named(component, tuned.option)) continue;
    const double in_text = number_in(kfac, tuned.option);
    const std::optional<double> in_options = value->constant();
    if (in_options != in_text)
      refuse(tuned.option, fmt::format("{}", in_text), tuned.field,
             in_options ? fmt::format("{}", *in_options) : "a function of the step");
  }
}

/// Writes intervals into the strategy's text. The Plan's schedule lists the steps of a cycle, so it
/// needs numbers and no function of the step.
void say_intervals(doc::Component& component, const KfacOptions& said) {
  for (const Tuned& tuned : kTuned) {
    const auto& value = said.*tuned.value;
    if (!tuned.in_plan || !value || is_named(component, tuned.option)) continue;
    if (!value->constant())
      throw UsageError(
          fmt::format("K-FAC: the preconditioner's option `{}` is a function of the step, but a "
                      "Plan needs a number of steps; give a number, or write {}= in the strategy",
                      tuned.field, tuned.option));
    say(component, tuned.option, fmt::format("{}", *value->constant()));
  }
}

}  // namespace

std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy, Preconditioner* preconditioner) {
  const auto named =
      std::find_if(strategy.extras.begin(), strategy.extras.end(),
                   [](const auto& extra) { return plan::is(extra, plan::Extra::curvature); });
  const bool is_named = named != strategy.extras.end();
  if (is_named == (preconditioner == nullptr))
    throw UsageError(fmt::format(
        "strategy {}: {}", doc::to_text(strategy),
        is_named ? "it preconditions; construct a KFAC and name it as the preconditioner"
                 : "it does not say how the preconditioner is shared among the ranks; add "
                   "\"+kfac(spd)\""));
  if (!is_named) return std::nullopt;
  const KfacOptions& said = preconditioner->said();
  const std::vector<Built> build = build_of(*preconditioner);
  for (const Built& one : build)
    if (const std::string* const text = named->find(one.option); text && *text != one.value)
      refuse(one.option, *text, one.field, one.value);
  require_said_once(*named, plan::Kfac::parse(*named), said);
  for (const Built& one : build)
    if (one.in_plan) say(*named, one.option, one.value);
  say_intervals(*named, said);
  const bool clip_is_off = said.kl_clip && said.kl_clip->constant() == 0.0;
  if (clip_is_off && !named->find("clip")) say(*named, "kl", "0");
  const plan::Kfac kfac = plan::Kfac::parse(*named);
  preconditioner->adopt(kfac);
  return kfac;
}

replan::SecondOrder second_order_of(const Preconditioner& preconditioner,
                                    comm::Communicator& communicator) {
  replan::SecondOrder known;
  std::vector<CurvatureBlock::Shape> shapes;
  at::TensorOptions where = at::kFloat;
  for (const auto& block : preconditioner.blocks()) {
    const CurvatureBlock::Shape& shape = shapes.emplace_back(block->shape());
    known.blocks.push_back({.layer = static_cast<int>(known.layers.size()),
                            .kind = shape.kind,
                            .a = shape.a,
                            .g = shape.g,
                            .groups = shape.groups});
    known.layers.push_back(block->layer().name);
    if (block->dtype() == at::kDouble) where = where.dtype(at::kDouble);
    where = where.device(block->layer().weight.device());
  }
  known.cost = probe_second_order(communicator, shapes, where, preconditioner.options().method);
  return known;
}

}  // namespace linerate::torch_adapter
