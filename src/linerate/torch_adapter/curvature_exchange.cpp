// The operations of a Plan's K-FAC tasks on one rank. Each task packs or unpacks parts of payloads
// (CurvaturePlan), and calls the Preconditioner between.
//
// On a device a launch costs some microseconds, however small a factor is. So tasks of inverses and
// directions only note their members, and the work waits until somebody needs it. Then factors of
// one size are inverted in one call. Example: one payload carries the inverses of factors 0, 1 and
// 2 of this rank. The tasks of 0 and 1 note them. The task of 2 completes the payload, so all three
// are inverted and packed. On the host each task does its work at once.
//
// All ranks must use the same bits of an inverse or direction. So the owner takes back what it has
// packed, which has the rounding of the payload, as the other ranks do.
#include "linerate/torch_adapter/curvature_exchange.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/kfac/conv_products.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/torch_adapter/buffer.hpp"
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::Task;
using doc::TaskGraph;

std::int64_t elements_of(const Blocks& blocks, doc::Content content, std::int32_t member) {
  if (content == doc::Content::directions) return blocks[to_index(member)]->direction_elements();
  const CurvatureBlock& block = *blocks[to_index(doc::block_of_factor(member))];
  const FactorSide side = doc::side_of_factor(member);
  return doc::holds_inverses(content) ? block.inverse_elements(side)
                                      : block.packed_elements(side) + doc::kFactorCounts;
}

/// Replaces `factor` by that of rank `root`, on every rank. It has `elements` packed elements of
/// this type.
void broadcast_factor(comm::Communicator& communicator, int root, std::int64_t elements,
                      at::ScalarType dtype, KfacState::Factor& factor) {
  std::array<double, 5> about = {static_cast<double>(factor.updates), factor.damping,
                                 factor.has_inverse ? 1.0 : 0, factor.average.defined() ? 1.0 : 0,
                                 factor.inverted.defined() ? 1.0 : 0};
  communicator.broadcast(comm::buffer(about), root, "state of a factor")->wait();
  factor.updates = static_cast<std::int64_t>(about[0]);
  factor.damping = about[1];
  factor.has_inverse = about[2] != 0;
  const auto send = [&](at::Tensor& values, bool there) {
    if (!there) return values.reset();
    // By way of the CPU, wherever it lies.
    values = communicator.rank() == root ? values.cpu().contiguous() : at::empty({elements}, dtype);
    communicator.broadcast(buffer(values), root, "a factor")->wait();
  };
  send(factor.average, about[3] != 0);
  send(factor.inverted, about[4] != 0);
}

}  // namespace

CurvatureExchange::CurvatureExchange(Preconditioner& preconditioner, PayloadMemory& memory,
                                     comm::Communicator& communicator, const StepTensors& tensors,
                                     const std::vector<Parameter>& parameters,
                                     const std::vector<std::int32_t>& block_of)
    : pre_(preconditioner),
      memory_(memory),
      communicator_(communicator),
      tensors_(tensors),
      parameters_(parameters),
      block_of_(block_of) {}

void CurvatureExchange::register_with(exec::StepRunner& runner) {
  runner_ = &runner;
  const auto add = [&](const char* name, auto tasks) {
    operations_.push_back(std::make_unique<OperationOf>(
        [this, tasks](const TaskGraph& graph, const Task& task) { (this->*tasks)(graph, task); }));
    runner.set_operation(name, *operations_.back());
  };
  add("pack-factors", &CurvatureExchange::pack_factors);
  add("average-factors", &CurvatureExchange::average_factors);
  add("inverse", &CurvatureExchange::invert);
  add("unpack-inverses", &CurvatureExchange::unpack_inverses);
  add("precondition", &CurvatureExchange::precondition);
  add("unpack-directions", &CurvatureExchange::unpack_directions);
  add("clip", &CurvatureExchange::clip);
}

// ---- which rank has which factors ----

Preconditioner::Holds CurvatureExchange::held_here(std::size_t block) const {
  const auto has = [&](const std::vector<std::int32_t>& ranks) {
    return ranks.empty() || std::ranges::find(ranks, communicator_.rank()) != ranks.end();
  };
  if (has(plan_->preconditioning[block])) return Preconditioner::Holds::inverses;
  return has(plan_->averaging[block]) ? Preconditioner::Holds::averages
                                      : Preconditioner::Holds::nothing;
}

/// If the new plan gives layers to other ranks, the ranks first share all averages and inverses.
/// Then each keeps its part by the new plan.
void CurvatureExchange::set_plan(std::shared_ptr<const doc::Plan> plan) {
  const Blocks& blocks = pre_.blocks();
  CurvaturePlan next(std::move(plan), blocks);
  std::optional<KfacState> whole;
  if (plan_ && plan_->preconditioning != next.preconditioning) whole = save();
  plan_ = std::move(next);
  if (whole) hold(*whole);
}

KfacState CurvatureExchange::save() {
  KfacState state = pre_.save();
  for (std::size_t b = 0; b < state.layers.size(); ++b) {
    const std::vector<std::int32_t>& ranks = plan_->preconditioning[b];
    if (ranks.empty()) continue;
    const CurvatureBlock& block = *pre_.blocks()[b];
    for (const FactorSide side : {FactorSide::a, FactorSide::g})
      broadcast_factor(communicator_, ranks.front(), block.packed_elements(side), block.dtype(),
                       side == FactorSide::a ? state.layers[b].a : state.layers[b].g);
  }
  return state;
}

void CurvatureExchange::load(const KfacState& state) {
  pre_.load(state, [this](std::size_t block) { return held_here(block); });
}

void CurvatureExchange::hold(const KfacState& state) {
  pre_.load_blocks(state, [this](std::size_t block) { return held_here(block); });
}

// ---- a step ----

void CurvatureExchange::begin_round() {
  pre_.begin();
  round_ = {};
}

void CurvatureExchange::end_round(bool counts) {
  if (!counts) return pre_.drop();
  precondition_waiting();  // no clip does
  reaches_next_step(*plan_->plan) ? pre_.await_gradients() : pre_.keep();
}

/// Turns a layer's gradients into its direction, under the next forward pass. A direction that is
/// not finite leaves its layer as it is, because other layers are updated already.
Preparation CurvatureExchange::late_direction(std::int32_t block) const {
  return [this, block, damping = pre_.damping_there()](const std::vector<at::Tensor>& parameters,
                                                       std::vector<at::Tensor>& gradients) {
    at::Tensor finite;
    with_gradients(parameters, gradients, [&] { finite = pre_.update_late(block, damping); });
    if (enqueues() || finite.item<bool>()) return;
    log::warning(
        fmt::format("K-FAC: layer \"{}\": its direction is not finite, so its weights do not "
                    "change in this step",
                    pre_.blocks()[to_index(block)]->layer().name));
    for (at::Tensor& gradient : gradients) gradient.reset();
  };
}

// ---- payloads ----

at::Tensor CurvatureExchange::values_of(const CurvaturePlan::Part& part) const {
  return memory_.values(part.payload).narrow(0, part.begin, part.elements);
}

at::Tensor CurvatureExchange::status_of(const CurvaturePlan::Part& part) const {
  const at::Tensor& values = memory_.values(part.payload);
  return values.select(0, values.numel() - part.status);
}

/// The members of a task's payload.
const std::vector<CurvaturePlan::Part>& CurvatureExchange::parts_of(const TaskGraph& graph,
                                                                    const Task& task) const {
  return plan_->of(graph).payloads[to_index(task.first)];
}

/// Members that travel in no payload wait for the first task that needs them. Others wait until all
/// members of their payload are there.
bool CurvatureExchange::waits(const CurvaturePlan::Part& part,
                              std::span<const std::int32_t> waiting) const {
  if (!enqueues()) return false;
  if (part.payload < 0) return true;
  const std::vector<CurvaturePlan::Part>& parts = round_.variant->payloads[to_index(part.payload)];
  return !std::ranges::all_of(parts, [&](const CurvaturePlan::Part& one) {
    return std::ranges::find(waiting, one.member) != waiting.end();
  });
}

// ---- factors ----

/// Writes this rank's sums of a batch, with their counts, to the payload. The all-reduce adds those
/// of the other ranks.
void CurvatureExchange::pack_factors(const TaskGraph& graph, const Task& task) {
  std::vector<CurvatureBlock::Packed> sums;
  for (const CurvaturePlan::Part& part : parts_of(graph, task))
    sums.push_back({pre_.factor(part.member), values_of(part)});
  CurvatureBlock::pack_batches(sums);
}

/// Takes sums that have arrived, or this rank's own, into the averages.
void CurvatureExchange::average_factors(const TaskGraph& graph, const Task& task) {
  if (task.subject != doc::Subject::payloads)
    return pre_.fold_batches(doc::block_of_factor(task.first), doc::block_of_factor(task.last));
  std::vector<std::int32_t> factors;
  std::vector<at::Tensor> sums;
  for (const CurvaturePlan::Part& part : parts_of(graph, task))
    factors.push_back(part.member), sums.push_back(values_of(part));
  pre_.fold(factors, sums);
}

// ---- inverses ----

void CurvatureExchange::invert(const TaskGraph& graph, const Task& task) {
  round_.variant = &plan_->of(graph);
  round_.inverted_here.insert(task.first);
  round_.to_invert.push_back(task.first);
  if (doc::is_inverted_with_next(*plan_->plan, task)) return;
  const auto& [block, side] = pre_.factor(task.first);
  if (block->is_eigen(side) ||  // the host waits for its solver, in the task that says so
      !waits(round_.variant->inverses[to_index(task.first)], round_.to_invert))
    invert_waiting();
}

void CurvatureExchange::invert_waiting() {
  if (round_.to_invert.empty()) return;
  const std::vector<std::int32_t> factors = std::exchange(round_.to_invert, {});
  const auto timed = [&](std::span<const std::size_t> set, const std::function<void()>& work) {
    const std::int64_t start = runner_->moment();
    work();
    TimedInverses& one = round_.inverses.emplace_back();
    for (const std::size_t k : set) one.factors.push_back(factors[k]);
    one.took = {start, runner_->moment()};
  };
  std::vector<at::Tensor> sent(factors.size());
  const auto part_of = [&](std::size_t k) -> const CurvaturePlan::Part& {
    return round_.variant->inverses[to_index(factors[k])];
  };
  for (std::size_t k = 0; k < factors.size(); ++k)
    if (part_of(k).payload >= 0) sent[k] = values_of(part_of(k));
  const at::Tensor succeeded = pre_.invert(factors, sent, timed).succeeded;
  for (std::size_t k = 0; k < factors.size(); ++k)
    if (sent[k].defined())
      status_of(part_of(k)).copy_(succeeded[static_cast<std::int64_t>(k)].bitwise_not());
}

void CurvatureExchange::unpack_inverses(const TaskGraph& graph, const Task& task) {
  std::vector<std::int32_t> factors;
  std::vector<at::Tensor> packed, status;
  for (const CurvaturePlan::Part& part : parts_of(graph, task)) {
    if (round_.inverted_here.contains(part.member)) continue;
    factors.push_back(part.member);
    packed.push_back(values_of(part)), status.push_back(status_of(part));
  }
  if (!factors.empty()) pre_.take_inverses(factors, packed, stacked(status).eq(0.0));
}

// ---- directions ----

/// On the host nothing is done for a step that does not count. On a device that is not known yet:
/// ranks agree on it when all is enqueued, and a step that does not count is undone.
void CurvatureExchange::with_means(std::span<const std::int32_t> blocks,
                                   const std::function<void()>& work) {
  if (!enqueues() && !tensors_.accepted()) return;
  std::vector<at::Tensor> parameters, means;
  for (const std::int32_t b : blocks)
    for (std::size_t p = 0; p < block_of_.size(); ++p)
      if (block_of_[p] == b)
        parameters.push_back(parameters_[p].tensor), means.push_back(tensors_.arrived(p));
  with_gradients(parameters, means, work);
}

void CurvatureExchange::precondition(const TaskGraph& graph, const Task& task) {
  round_.variant = &plan_->of(graph);
  const std::int32_t block = doc::block_of_factor(task.first);
  round_.preconditioned_here.insert(block);
  round_.to_precondition.push_back(block);
  if (!waits(round_.variant->directions[to_index(block)], round_.to_precondition))
    precondition_waiting();
}

void CurvatureExchange::precondition_waiting() {
  invert_waiting();
  if (round_.to_precondition.empty()) return;
  const std::vector<std::int32_t> blocks = std::exchange(round_.to_precondition, {});
  with_means(blocks, [&] {
    pre_.invert_diagonals(blocks);
    std::vector<std::int32_t> own;
    for (const std::int32_t b : blocks) {
      const CurvaturePlan::Part& part = round_.variant->directions[to_index(b)];
      part.payload < 0 ? own.push_back(b) : send_direction(b, part);
    }
    pre_.precondition(own);
  });
}

/// A layer without a gradient is marked by kNoDirection in its first element, and one whose
/// direction is not finite by NaNs. So the ranks that receive the payload treat it as the owner
/// does.
void CurvatureExchange::send_direction(std::int32_t block, const CurvaturePlan::Part& part) {
  const at::Tensor values = values_of(part);
  const CurvatureBlock::Directions found = pre_.direction(block);
  if (!found.exist.defined()) {
    values.fill_(kNoDirection);
    return;
  }
  const at::Tensor none =
      at::where(found.exist, std::numeric_limits<double>::quiet_NaN(), kNoDirection);
  const at::Tensor fine = at::isfinite(found.products).bitwise_and(found.exist);
  values.copy_(choice(fine, found.directions.flatten(), none));
  pre_.take_directions({&block, 1}, {values}, found.exist);  // the bits that the others get
}

void CurvatureExchange::unpack_directions(const TaskGraph& graph, const Task& task) {
  std::vector<std::int32_t> blocks;
  std::vector<at::Tensor> values, heads;
  for (const CurvaturePlan::Part& part : parts_of(graph, task)) {
    if (round_.preconditioned_here.contains(part.member)) continue;
    blocks.push_back(part.member);
    values.push_back(values_of(part)), heads.push_back(values.back().select(0, 0));
  }
  if (blocks.empty()) return;
  with_means(blocks,
             [&] { pre_.take_directions(blocks, values, stacked(heads).ne(kNoDirection)); });
}

void CurvatureExchange::clip(const TaskGraph&, const Task&) {
  precondition_waiting();
  if (enqueues() || tensors_.accepted()) pre_.clip();
}

// Reads a Plan once for CurvatureExchange: which ranks average and precondition each layer, and
// where each factor, inverse or direction lies in the payloads.
//
// Example: a payload of the inverses of factors 4, 5 and 7 with 10, 20 and 30 elements. They begin
// at 0, 10 and 30. Three statuses follow, so the payload has 63 elements, and factor 5's status is
// the second from the end.

/// Members stand one after the other in their payload. After them a payload of inverses has a
/// status for each member, in the same order, so the last member's status is the last element.
CurvaturePlan::CurvaturePlan(std::shared_ptr<const doc::Plan> made, const Blocks& blocks)
    : plan(std::move(made)), preconditioning(blocks.size()), averaging(blocks.size()) {
  for (const doc::TaskGraph& graph : plan->variants) {
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
        const std::int64_t elements = elements_of(blocks, payload.content, member);
        const Part part{static_cast<std::int32_t>(p), member, begin, elements, payload.end - m};
        variant.payloads[p].push_back(part);
        if (inverses) variant.inverses[to_index(member)] = part;
        if (directions) variant.directions[to_index(member)] = part;
        begin += elements;
      }
    }
  }
}

bool reaches_next_step(const doc::Plan& plan) {
  return std::ranges::any_of(plan.variants,
                             [](const TaskGraph& graph) { return !graph.next_step.empty(); });
}

const CurvaturePlan::Variant& CurvaturePlan::of(const doc::TaskGraph& graph) const {
  const auto index = &graph - plan->variants.data();
  LINERATE_CHECK(index >= 0 && index < std::ssize(variants), "a graph of another plan");
  return variants[to_index(index)];
}

// Measures the cost of K-FAC's work on this machine in four short runs. They are a small and a
// large inverse, a product for a factor, and one for a direction. Planners price factors, inverses
// and directions by these. All ranks use the mean over ranks, so that they make the same plan.

namespace {

constexpr std::int64_t kSmall = 64, kLargest = 1024;

double cube(std::int64_t d) { return static_cast<double>(d * d * d); }

/// Times K-FAC's parts. Inverses (eigendecompositions) are those of a small matrix and of one as
/// large as the largest factor, up to 1024. Products are a symmetric and a plain one of that size.
/// Takes the least of three runs, which all ranks make at once, and the mean over ranks. This is
/// enough to place inverses; for predictions there is `linerate calibrate`. On a device by the
/// device's clock.
///
/// An inverse takes a fixed time plus one that grows as the cube of the size, so two sizes give
/// both. For example 64 rows take 0.1 ms and 1024 rows take 40 ms. The cubes differ by 1.07e9, so a
/// cube costs 37 ps and the fixed part is 0.09 ms.
doc::SecondOrderCost probe_second_order(comm::Communicator& communicator,
                                        const std::vector<doc::Block>& blocks,
                                        const at::TensorOptions& where, InverseMethod method) {
  const c10::NoGradGuard no_grad;
  const std::unique_ptr<TensorClock> clock = clock_of_current_stream(where.device());
  const auto least_s = [&](const std::function<void()>& work) {
    double least_ns = std::numeric_limits<double>::infinity();
    for (int run = 0; run < 3; ++run) {
      clock->set(0, 0);
      work();
      clock->set(1, 0);
      clock->wait_for(1);
      least_ns = std::min(least_ns, clock->ns_between(0, 1));
    }
    return std::max(least_ns, 1.0) * 1e-9;
  };
  // Eigendecompositions take longer if the eigenvalues differ.
  const auto inverse_s = [&](std::int64_t d) {
    const at::Tensor matrix =
        at::add(at::diag(at::arange(1, d + 1, where)), at::ones({d, d}, where)).unsqueeze(0);
    const at::Tensor damping = at::full({1}, 0.1, where);
    return least_s([&] {
      method == InverseMethod::eigen ? symmetric_eigen(matrix) : damped_inverses(matrix, damping);
    });
  };
  std::int64_t large = 2 * kSmall;
  for (const doc::Block& block : blocks)
    if (block.kind == BlockKind::kronecker) large = std::max({large, block.a, block.g});
  large = std::min(large, kLargest);
  const at::Tensor rows = at::ones({large, large}, where), sum = at::zeros({large, large}, where);
  std::array<double, 4> seconds = {
      inverse_s(kSmall), inverse_s(large), least_s([&] { add_symmetric_product(rows, 1, sum); }),
      least_s([&] { static_cast<void>(times_transpose(rows, rows)); })};
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

}  // namespace

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
  const auto has = [&](doc::BlockKind kind) {
    return std::ranges::any_of(preconditioner.blocks(),
                               [kind](const auto& block) { return block->shape().kind == kind; });
  };
  const bool norms = has(doc::BlockKind::unit_wise), words = has(doc::BlockKind::embedding),
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

/// Whether the strategy names it; the clip has two names.
bool is_named(const doc::Component& component, std::string_view option) {
  const std::string* const clip = component.find("clip");
  return component.find(option) || (option == "kl" && clip && *clip == "off");
}

/// An option that stands in the text and in the options must be the same in both. Those that the
/// Plan depends on are written into the text. Its schedule lists the steps of a cycle, so intervals
/// are numbers there and no functions of the step.
void join_tuned(doc::Component& component, const KfacOptions& said) {
  const plan::Kfac kfac = plan::Kfac::parse(component);
  for (const TunedOption& tuned : tuned_options()) {
    const auto& value = said.*tuned.value;
    if (!value) continue;
    const std::optional<double> number = value->constant();
    if (is_named(component, tuned.option)) {
      const double in_text = tuned.in_text(kfac).value();
      if (number != in_text)
        refuse(tuned.option, fmt::format("{}", in_text), tuned.field,
               number ? fmt::format("{}", *number) : "a function of the step");
    } else if (tuned.in_plan) {
      if (!number)
        throw UsageError(
            fmt::format("K-FAC: the preconditioner's option `{}` is a function of the step, but a "
                        "Plan needs a number of steps; give a number, or write {}= in the strategy",
                        tuned.field, tuned.option));
      say(component, tuned.option, fmt::format("{}", *number));
    }
  }
}

}  // namespace

std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy, Preconditioner* preconditioner) {
  const auto named = std::ranges::find_if(
      strategy.extras, [](const auto& extra) { return plan::is(extra, plan::Extra::curvature); });
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
  for (const Built& one : build)
    if (one.in_plan) say(*named, one.option, one.value);
  join_tuned(*named, said);
  const bool clip_is_off = said.kl_clip && said.kl_clip->constant() == 0.0;
  if (clip_is_off && !named->find("clip")) say(*named, "kl", "0");
  const plan::Kfac kfac = plan::Kfac::parse(*named);
  preconditioner->adopt(kfac);
  return kfac;
}

SecondOrder second_order_of(const Preconditioner& preconditioner,
                            comm::Communicator& communicator) {
  SecondOrder known;
  at::TensorOptions where = at::kFloat;
  for (const auto& block : preconditioner.blocks()) {
    known.blocks.push_back(block->shape());
    known.blocks.back().layer = static_cast<int>(known.layers.size());
    known.layers.push_back(block->layer().name);
    if (block->dtype() == at::kDouble) where = where.dtype(at::kDouble);
    where = where.device(block->layer().weight.device());
  }
  known.cost =
      probe_second_order(communicator, known.blocks, where, preconditioner.options().method);
  return known;
}

}  // namespace linerate::torch_adapter
