// A step of the exchange: who holds what, its rounds, and whether they count. The operations are in
// curvature_operations.cpp.
#include "linerate/torch_adapter/kfac/curvature_exchange.hpp"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/log.hpp"
#include "linerate/torch_adapter/kfac/kl_clip.hpp"
#include "linerate/torch_adapter/kfac/state_exchange.hpp"
#include "linerate/torch_adapter/operation_of.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::Task;
using doc::TaskGraph;

/// Those that have this operation's task of the block's factors or inverses; empty: all.
std::vector<std::int32_t> ranks_of(const doc::Plan& plan, std::string_view operation,
                                   std::int32_t block) {
  for (const TaskGraph& graph : plan.variants)
    for (const Task& task : graph.tasks) {
      if (task.subject == doc::Subject::payloads || plan.operation_name(task) != operation ||
          doc::block_of_factor(task.first) > block || doc::block_of_factor(task.last) < block)
        continue;
      std::vector<std::int32_t> ranks;
      for (const auto& part : plan.groups[to_index(task.group)].parts)
        ranks.insert(ranks.end(), part.begin(), part.end());
      return ranks;
    }
  return {};
}

}  // namespace

CurvatureExchange::CurvatureExchange(Preconditioner& preconditioner, PayloadMemory& memory,
                                     comm::Communicator& communicator, Step step)
    : preconditioner_(preconditioner),
      memory_(memory),
      communicator_(communicator),
      step_(std::move(step)) {}

void CurvatureExchange::add(exec::Runner& runner, const char* name, Tasks tasks) {
  operations_.push_back(std::make_unique<OperationOf>(
      [this, tasks](const TaskGraph& graph, const Task& task) { (this->*tasks)(graph, task); }));
  runner.set_operation(name, *operations_.back());
}

void CurvatureExchange::register_with(exec::Runner& runner) {
  add(runner, "pack-factors", &CurvatureExchange::pack_factors);
  add(runner, "average-factors", &CurvatureExchange::average_factors);
  add(runner, "inverse", &CurvatureExchange::invert);
  add(runner, "unpack-inverses", &CurvatureExchange::unpack_inverses);
  add(runner, "precondition", &CurvatureExchange::precondition);
  add(runner, "unpack-directions", &CurvatureExchange::unpack_directions);
  add(runner, "clip", &CurvatureExchange::clip);
  add(runner, "pack-losses", &CurvatureExchange::pack_losses);
  add(runner, "take-losses", &CurvatureExchange::take_losses);
  add(runner, "quadratic-model", &CurvatureExchange::quadratic_model);
  add(runner, "minimise", &CurvatureExchange::minimise);
}

// ---- who holds what ----

Preconditioner::Holds CurvatureExchange::held_here(std::size_t block) const {
  const auto has = [&](std::string_view operation) {
    const std::vector<std::int32_t> ranks =
        ranks_of(*plan_, operation, static_cast<std::int32_t>(block));
    return ranks.empty() ||
           std::find(ranks.begin(), ranks.end(), communicator_.rank()) != ranks.end();
  };
  if (has("precondition")) return Preconditioner::Holds::inverses;
  return has("average-factors") ? Preconditioner::Holds::averages : Preconditioner::Holds::nothing;
}

void CurvatureExchange::set_plan(std::shared_ptr<const doc::Plan> plan) {
  std::optional<KfacState> whole;
  const auto blocks = static_cast<std::int32_t>(preconditioner_.blocks().size());
  for (std::int32_t b = 0; plan_ && !whole && b < blocks; ++b)
    if (ranks_of(*plan, "precondition", b) != ranks_of(*plan_, "precondition", b)) whole = save();
  plan_ = std::move(plan);
  late_ = std::any_of(plan_->variants.begin(), plan_->variants.end(),
                      [](const TaskGraph& g) { return !g.next_step.empty(); });
  if (whole) hold(*whole);
}

KfacState CurvatureExchange::save() {
  KfacState state = preconditioner_.save();
  if (preconditioner_.lm()) state.lm_damping = damping_with_losses();
  for (std::size_t b = 0; b < state.layers.size(); ++b) {
    const std::vector<std::int32_t> ranks =
        ranks_of(*plan_, "precondition", static_cast<std::int32_t>(b));
    if (ranks.empty()) continue;
    const CurvatureBlock& block = *preconditioner_.blocks()[b];
    for (const FactorSide side : {FactorSide::a, FactorSide::g})
      broadcast_factor(communicator_, ranks.front(), block.packed_elements(side), block.dtype(),
                       side == FactorSide::a ? state.layers[b].a : state.layers[b].g);
  }
  return state;
}

/// The damping after the losses of the last update, which ranks would sum in the next step.
double CurvatureExchange::damping_with_losses() const {
  const LmUpdate& lm = *preconditioner_.lm();
  std::array<double, 2> sums{lm.change().value_or(0) * share_, lm.change() ? 1.0 : 0.0};
  communicator_
      .all_reduce({sums.data(), {static_cast<std::int64_t>(sums.size())}, DType::f64},
                  comm::Reduce::sum, "losses of the last update")
      ->wait();
  return sums[1] == communicator_.size() ? lm.damping_after(sums[0]) : lm.damping();
}

void CurvatureExchange::load(const KfacState& state) {
  hold(state);
  preconditioner_.load_rule(state);
  preconditioner_.set_step(state.step);
}

void CurvatureExchange::hold(const KfacState& state) {
  preconditioner_.load_blocks(state, [this](std::size_t block) { return held_here(block); });
}

// ---- a step ----

void CurvatureExchange::begin_round() {
  preconditioner_.undo();
  has_directions_ = false;
  directions_.assign(preconditioner_.blocks().size(), std::nullopt);
  sums_.assign(directions_.size(), {});
  inverse_s_.assign(2 * directions_.size(), -1);
  inverted_here_.clear();
  preconditioned_here_.clear();
  nu_.reset();
  q_ = 0;
  skipped_ = false;
}

void CurvatureExchange::keep() {
  if (late_) {
    for (std::size_t b = 0; b < directions_.size(); ++b)
      invert_diagonals(static_cast<std::int32_t>(b));
  } else {
    if (!has_directions_) {  // no task clips
      add_products();
      nu_ = kl_clip_factor(q_, 0, 0);
    }
    keep_or_undo();
  }
  has_directions_ = true;
}

void CurvatureExchange::take_all() {
  if (!late_ || !has_directions_) return;
  for (std::size_t b = 0; b < directions_.size(); ++b)
    if (preconditioner_.can_precondition(b)) directions_[b] = preconditioner_.direction(b);
  add_products();
  nu_ = kl_clip_factor(q_, 0, 0);
  keep_or_undo();
}

/// Before a plan may give averages and inverses other owners.
void CurvatureExchange::keep_or_undo() {
  const bool counts = nu_ && misuse_.empty();
  counts ? preconditioner_.keep() : preconditioner_.undo_but_count();
}

void CurvatureExchange::drop() {
  preconditioner_.undo();
  failure_ = nullptr;
  has_directions_ = false;
}

KfacStep CurvatureExchange::report() const {
  return {.step = preconditioner_.step(),
          .factors = preconditioner_.factors_due(),
          .inverses = preconditioner_.inverses_due(),
          .q = q_,
          .damping = preconditioner_.damping()};
}

KfacStep CurvatureExchange::skip() {
  KfacStep skipped = report();
  preconditioner_.skip_step(skipped);
  return skipped;
}

void CurvatureExchange::add_products() {
  for (std::size_t b = 0; b < directions_.size(); ++b)
    q_ += directions_[b] ? directions_[b]->product : preconditioner_.plain_product(b);
}

void CurvatureExchange::end_late() {
  has_directions_ = false;
  KfacStep done = report();
  preconditioner_.end_step(done);
}

/// A direction that is not finite leaves its layer as it is: others are updated already.
Preparation CurvatureExchange::late_direction(std::int32_t block) const {
  return [this, b = to_index(block), damping = preconditioner_.damping()](
             const std::vector<at::Tensor>& parameters, std::vector<at::Tensor>& gradients) {
    const CurvatureBlock& layer = *preconditioner_.blocks()[b];
    // What a pass has already left there belongs to the next step.
    std::vector<at::Tensor> next;
    for (std::size_t k = 0; k < parameters.size(); ++k)
      next.push_back(std::exchange(parameters[k].mutable_grad(), gradients[k]));
    if (preconditioner_.can_precondition(b)) {
      const Preconditioner::Direction found = preconditioner_.direction(b, damping);
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

KfacStep CurvatureExchange::write() {
  const c10::NoGradGuard no_grad;
  if (!has_directions_ && !skipped_)
    throw UsageError(
        "K-FAC: step() without an exchange: call DataParallel::finish() between backward() and it");
  if (!misuse_.empty()) {
    skip();
    has_directions_ = skipped_ = false;
    throw UsageError(std::exchange(misuse_, ""));
  }
  const bool counts = std::exchange(has_directions_, false) && nu_;
  skipped_ = false;
  if (!counts) return skip();
  KfacStep done = report();
  done.nu = *nu_;
  for (std::size_t b = 0; b < directions_.size(); ++b) {
    const CurvatureBlock& block = *preconditioner_.blocks()[b];
    if (directions_[b] && !preconditioner_.lm())
      block.write(directions_[b]->direction, *nu_);
    else if (!directions_[b] && block.layer().weight.grad().defined())
      done.plain.push_back(block.layer().name);
  }
  if (preconditioner_.lm()) preconditioner_.lm()->write();
  preconditioner_.end_step(done);
  return done;
}

}  // namespace linerate::torch_adapter
