#include "linerate/torch_adapter/kfac/curvature_exchange.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/log.hpp"
#include "linerate/torch_adapter/buffer.hpp"
#include "linerate/torch_adapter/operation_of.hpp"

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

/// `factor` becomes that of rank `root`, on every rank; `elements` packed ones of this type.
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

CurvatureExchange::CurvatureExchange(CurvatureStep& step, PayloadMemory& memory,
                                     comm::Communicator& communicator, Gradients gradients)
    : step_(step), memory_(memory), communicator_(communicator), gradients_(std::move(gradients)) {}

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

// ---- who holds what ----

Preconditioner::Holds CurvatureExchange::held_here(std::size_t block) const {
  const auto has = [&](const std::vector<std::int32_t>& ranks) {
    return ranks.empty() ||
           std::find(ranks.begin(), ranks.end(), communicator_.rank()) != ranks.end();
  };
  if (has(plan_->preconditioning[block])) return Preconditioner::Holds::inverses;
  return has(plan_->averaging[block]) ? Preconditioner::Holds::averages
                                      : Preconditioner::Holds::nothing;
}

void CurvatureExchange::set_plan(std::shared_ptr<const doc::Plan> plan) {
  const Blocks& blocks = preconditioner().blocks();
  CurvaturePlan next(std::move(plan), blocks.size(),
                     [&](doc::Content content, std::int32_t member) {
                       return elements_of(blocks, content, member);
                     });
  std::optional<KfacState> whole;
  if (plan_ && plan_->preconditioning != next.preconditioning) whole = save();
  plan_ = std::move(next);
  if (whole) hold(*whole);
}

KfacState CurvatureExchange::save() {
  KfacState state = preconditioner().save();
  for (std::size_t b = 0; b < state.layers.size(); ++b) {
    const std::vector<std::int32_t>& ranks = plan_->preconditioning[b];
    if (ranks.empty()) continue;
    const CurvatureBlock& block = *preconditioner().blocks()[b];
    for (const FactorSide side : {FactorSide::a, FactorSide::g})
      broadcast_factor(communicator_, ranks.front(), block.packed_elements(side), block.dtype(),
                       side == FactorSide::a ? state.layers[b].a : state.layers[b].g);
  }
  return state;
}

void CurvatureExchange::load(const KfacState& state) {
  preconditioner().load(state, [this](std::size_t block) { return held_here(block); });
}

void CurvatureExchange::hold(const KfacState& state) {
  preconditioner().load_blocks(state, [this](std::size_t block) { return held_here(block); });
}

// ---- a step ----

void CurvatureExchange::begin_round() {
  step_.begin();
  round_ = {};
  round_.sums.resize(preconditioner().blocks().size());
}

void CurvatureExchange::end_round(bool counts) {
  if (!counts) return step_.drop();
  plan_->is_late ? step_.await_gradients() : step_.keep();
}

/// A direction that is not finite leaves its layer as it is: others are updated already.
Preparation CurvatureExchange::late_direction(std::int32_t block) const {
  const at::Tensor there = enqueues() ? preconditioner().damping_there() : at::Tensor();
  return [this, b = to_index(block), damping = preconditioner().damping(), there](
             const std::vector<at::Tensor>& parameters, std::vector<at::Tensor>& gradients) {
    const CurvatureBlock& layer = *preconditioner().blocks()[b];
    // What a pass has already left there belongs to the next step.
    std::vector<at::Tensor> next;
    for (std::size_t k = 0; k < parameters.size(); ++k)
      next.push_back(std::exchange(parameters[k].mutable_grad(), gradients[k]));
    if (there.defined()) {
      enqueue_late_direction(b, there);
    } else if (preconditioner().can_precondition(b)) {
      const Preconditioner::Direction found = preconditioner().direction(b, damping);
      if (std::isfinite(found.product)) {
        layer.write(found.direction, 1);
      } else {
        log::warning(fmt::format(
            "K-FAC: layer \"{}\": its direction is not finite; it keeps its weights in this step",
            layer.layer().name));
        for (at::Tensor& gradient : gradients) gradient.reset();
      }
    }
    for (std::size_t k = 0; k < parameters.size(); ++k)
      parameters[k].mutable_grad() = std::move(next[k]);
  };
}

// ---- payloads ----

CurvatureBlock& CurvatureExchange::block_of(std::int32_t factor) const {
  return *preconditioner().blocks().at(to_index(doc::block_of_factor(factor)));
}

at::Tensor CurvatureExchange::values_of(const CurvaturePlan::Part& part) const {
  return memory_.values(part.payload).narrow(0, part.begin, part.elements);
}

at::Tensor CurvatureExchange::status_of(const CurvaturePlan::Part& part) const {
  const at::Tensor& values = memory_.values(part.payload);
  return values[values.numel() - part.status];
}

// ---- factors ----

void CurvatureExchange::pack_factors(const TaskGraph& graph, const Task& task) {
  for (const CurvaturePlan::Part& part : plan_->of(graph).payloads[to_index(task.first)])
    block_of(part.member).pack_batch(doc::side_of_factor(part.member), values_of(part));
}

/// What is not finite is dropped, on every rank alike: all have the same sums.
void CurvatureExchange::average_factors(const TaskGraph& graph, const Task& task) {
  if (task.subject == doc::Subject::payloads) {
    for (const CurvaturePlan::Part& part : plan_->of(graph).payloads[to_index(task.first)])
      receive_sum(part.member, values_of(part));
    return;
  }
  const std::int32_t last = doc::block_of_factor(task.last);
  for (std::int32_t b = doc::block_of_factor(task.first); b <= last; ++b) step_.fold(to_index(b));
}

void CurvatureExchange::receive_sum(std::int32_t factor, const at::Tensor& part) {
  const std::size_t b = to_index(doc::block_of_factor(factor));
  std::array<at::Tensor, 2>& sums = round_.sums[b];
  sums[to_index(doc::side_of_factor(factor))] = part;
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    if (!sums[to_index(side)].defined() && block_of(factor).packed_elements(side) > 0) return;
  step_.fold(b, sums);
}

// ---- inverses ----

void CurvatureExchange::invert(const TaskGraph& graph, const Task& task) {
  round_.inverted_here.insert(task.first);
  round_.with_next.push_back(task.first);
  if (doc::is_inverted_with_next(*plan_->plan, task)) return;
  std::vector<std::int32_t> factors = std::exchange(round_.with_next, {});
  const std::int64_t start = runner_->moment();
  if (enqueues() && factors.size() > 1)
    step_.enqueue_inverses(factors);
  else
    for (const std::int32_t f : factors) compute_inverse(f, plan_->of(graph).inverses[to_index(f)]);
  round_.inverses.push_back({std::move(factors), {start, runner_->moment()}});
}

void CurvatureExchange::compute_inverse(std::int32_t factor, const CurvaturePlan::Part& part) {
  if (enqueues()) return enqueue_inverse(factor, part);
  CurvatureBlock& block = block_of(factor);
  const auto side = doc::side_of_factor(factor);
  const bool succeeded = step_.invert(to_index(doc::block_of_factor(factor)), side);
  if (part.payload < 0) return;
  status_of(part).fill_(succeeded ? 0.0 : 1.0);
  if (!succeeded) return;
  const at::Tensor values = values_of(part);
  values.copy_(block.packed_inverse(side));
  // Uses the bits that the others get: the solver's result has another order in memory and other
  // roundings.
  block.set_packed_inverse(side, values, preconditioner().damping());
}

void CurvatureExchange::unpack_inverses(const TaskGraph& graph, const Task& task) {
  for (const CurvaturePlan::Part& part : plan_->of(graph).payloads[to_index(task.first)]) {
    if (round_.inverted_here.contains(part.member)) continue;
    if (enqueues()) {
      enqueue_taken_inverse(part);
      continue;
    }
    const bool succeeded = status_of(part).item<double>() == 0.0;
    preconditioner().take_inverse(to_index(doc::block_of_factor(part.member)),
                                  doc::side_of_factor(part.member),
                                  succeeded ? values_of(part) : at::Tensor());
  }
}

// ---- directions ----

void CurvatureExchange::precondition(const TaskGraph& graph, const Task& task) {
  const std::int32_t block = doc::block_of_factor(task.first);
  const std::size_t b = to_index(block);
  round_.preconditioned_here.insert(block);
  if (enqueues()) return enqueue_direction(plan_->of(graph).directions[b], b);
  if (!gradients_.accepted()) return;
  gradients_.take_means(b);
  step_.invert_diagonals(b);
  step_.precondition(b);
  const CurvaturePlan::Part& part = plan_->of(graph).directions[b];
  if (part.payload < 0) return;
  const at::Tensor values = values_of(part);
  const auto& found = step_.direction(b);
  if (!found) {
    values.fill_(kNoDirection);
    return;
  }
  if (std::isfinite(found->product))
    values.copy_(found->direction.reshape({-1}));
  else
    values.fill_(std::numeric_limits<double>::quiet_NaN());
  step_.take_direction(b, values);  // uses the bits that the others get
}

void CurvatureExchange::unpack_directions(const TaskGraph& graph, const Task& task) {
  if (!enqueues() && !gradients_.accepted()) return;
  for (const CurvaturePlan::Part& part : plan_->of(graph).payloads[to_index(task.first)]) {
    if (round_.preconditioned_here.contains(part.member)) continue;
    if (enqueues()) {
      enqueue_taken_direction(part);
      continue;
    }
    const std::size_t b = to_index(part.member);
    gradients_.take_means(b);
    const at::Tensor values = values_of(part);
    if (!preconditioner().blocks()[b]->layer().weight.grad().defined() ||
        values[0].item<double>() == kNoDirection)
      continue;
    step_.take_direction(b, values);
  }
}

void CurvatureExchange::clip(const TaskGraph&, const Task&) {
  if (enqueues() || gradients_.accepted()) step_.clip();
}

}  // namespace linerate::torch_adapter
