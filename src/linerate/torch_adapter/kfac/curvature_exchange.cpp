#include "linerate/torch_adapter/kfac/curvature_exchange.hpp"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/kl_clip.hpp"
#include "linerate/torch_adapter/kfac/state_exchange.hpp"
#include "linerate/torch_adapter/operation_of.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::Content;
using doc::Task;
using doc::TaskGraph;

/// In place of a direction whose layer has no inverse yet: its gradient stays as it is. (NaN in one
/// skips the step.)
constexpr double kNoDirection = std::numeric_limits<double>::infinity();

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Those that have this operation's task of the block's factors or inverses; empty: all.
std::vector<std::int32_t> ranks_of(const doc::Plan& plan, std::string_view operation,
                                   std::int32_t block) {
  for (const TaskGraph& graph : plan.variants)
    for (const Task& task : graph.tasks) {
      if (task.subject == doc::Subject::payloads || plan.operation_name(task) != operation ||
          doc::block_of_factor(task.first) > block || doc::block_of_factor(task.last) < block)
        continue;
      std::vector<std::int32_t> ranks;
      for (const auto& part : plan.groups[at(task.group)].parts)
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

void CurvatureExchange::load(const KfacState& state) {
  hold(state);
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
    preconditioner_.keep();
  } else {
    if (!has_directions_) {  // no task clips
      add_products();
      nu_ = kl_clip_factor(q_, 0, 0);
    }
    nu_ ? preconditioner_.keep() : preconditioner_.undo_but_count();
  }
  has_directions_ = true;
}

void CurvatureExchange::drop() {
  preconditioner_.undo();
  failure_ = nullptr;
  has_directions_ = false;
}

template <typename Work>
void CurvatureExchange::guarded(Work&& work) {
  try {
    work();
  } catch (const Error&) {
    if (!failure_) failure_ = std::current_exception();
  }
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

/// All gradients were waited for.
void CurvatureExchange::precondition_here() {
  for (std::size_t b = 0; b < directions_.size(); ++b)
    if (preconditioner_.can_precondition(b)) directions_[b] = preconditioner_.direction(b);
  add_products();
  nu_ = kl_clip_factor(q_, 0, 0);
}

void CurvatureExchange::end_late() {
  has_directions_ = false;
  KfacStep done = report();
  preconditioner_.end_step(done);
}

/// A direction that is not finite leaves its layer as it is: others have been updated already.
Preparation CurvatureExchange::late_direction(std::int32_t block) const {
  return [this, b = at(block), damping = preconditioner_.damping()](
             const std::vector<at::Tensor>& parameters, std::vector<at::Tensor>& gradients) {
    const CurvatureBlock& layer = *preconditioner_.blocks()[b];
    for (std::size_t k = 0; k < parameters.size(); ++k) parameters[k].mutable_grad() = gradients[k];
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
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
  };
}

KfacStep CurvatureExchange::write() {
  const c10::NoGradGuard no_grad;
  if (!has_directions_ && !skipped_)
    throw UsageError(
        "K-FAC: step() without an exchange: call DataParallel::finish() between backward() and it");
  if (!misuse_.empty()) throw UsageError(std::exchange(misuse_, ""));
  if (late_ && has_directions_) precondition_here();
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

// ---- payloads ----

CurvatureBlock& CurvatureExchange::block_of(std::int32_t factor) const {
  return *preconditioner_.blocks().at(at(doc::block_of_factor(factor)));
}

Content CurvatureExchange::inverse_content() const {
  const bool by_eigen = preconditioner_.options().method == InverseMethod::eigen;
  return by_eigen ? Content::eigen : Content::inverse;
}

std::int64_t CurvatureExchange::elements_of(Content content, std::int32_t member) const {
  if (content == Content::directions)
    return preconditioner_.blocks()[at(member)]->direction_elements();
  const CurvatureBlock& block = block_of(member);
  return doc::holds_inverses(content) ? block.inverse_elements(doc::side_of_factor(member))
                                      : block.packed_elements(doc::side_of_factor(member));
}

template <typename Visit>
void CurvatureExchange::for_members(const TaskGraph& graph, std::int32_t payload, Visit&& visit) {
  const doc::Payload& p = graph.payloads[at(payload)];
  const at::Tensor& values = memory_.values(payload);
  std::int64_t begin = 0;
  for (std::int32_t m = p.begin; m < p.end; ++m) {
    const std::int32_t member = graph.members[at(m)];
    const std::int64_t elements = elements_of(p.content, member);
    visit(member, values.narrow(0, begin, elements));
    begin += elements;
  }
}

at::Tensor CurvatureExchange::part_of(const TaskGraph& graph, Content content, std::int32_t member,
                                      std::int32_t* payload) {
  for (std::size_t p = 0; p < graph.payloads.size(); ++p) {
    const doc::Payload& candidate = graph.payloads[p];
    if (candidate.content != content) continue;
    const auto begin = graph.members.begin() + candidate.begin;
    const auto end = graph.members.begin() + candidate.end;
    if (std::find(begin, end, member) == end) continue;
    at::Tensor found;
    for_members(graph, static_cast<std::int32_t>(p), [&](std::int32_t m, const at::Tensor& part) {
      if (m == member) found = part;
    });
    if (payload) *payload = static_cast<std::int32_t>(p);
    return found;
  }
  return {};
}

at::Tensor CurvatureExchange::status_of(const TaskGraph& graph, std::int32_t payload,
                                        std::int32_t factor) {
  const doc::Payload& p = graph.payloads[at(payload)];
  const auto end = graph.members.begin() + p.end;
  const at::Tensor& values = memory_.values(payload);
  return values[values.numel() - (end - std::find(graph.members.begin() + p.begin, end, factor))];
}

// ---- factors ----

void CurvatureExchange::pack_factors(const TaskGraph& graph, const Task& task) {
  const double share = step_.share();
  for_members(graph, task.first, [&](std::int32_t factor, const at::Tensor& part) {
    block_of(factor).batch_factor(doc::side_of_factor(factor), share, part);
  });
}

/// What is not finite is dropped, on every rank alike: all have the same sums.
void CurvatureExchange::average_factors(const TaskGraph& graph, const Task& task) {
  const auto fold = [&](std::int32_t factor, const at::Tensor& packed) {
    guarded([&] {
      preconditioner_.fold(at(doc::block_of_factor(factor)), doc::side_of_factor(factor), packed);
    });
  };
  if (task.subject == doc::Subject::payloads) return for_members(graph, task.first, fold);
  for (std::int32_t f = task.first; f <= task.last; ++f) {
    const CurvatureBlock& block = block_of(f);
    if (!block.has_batch(doc::side_of_factor(f))) continue;
    fold(f, block.batch_factor(doc::side_of_factor(f)));
  }
}

// ---- inverses ----

void CurvatureExchange::invert(const TaskGraph& graph, const Task& task) {
  for (std::int32_t f = task.first; f <= task.last; ++f) {
    inverted_here_.insert(f);
    CurvatureBlock& block = block_of(f);
    const auto side = doc::side_of_factor(f);
    bool succeeded = false;
    const std::int64_t start_ns = steady_ns();
    guarded([&] { succeeded = preconditioner_.update_inverse(at(doc::block_of_factor(f)), side); });
    inverse_s_[at(f)] = static_cast<double>(steady_ns() - start_ns) * 1e-9;
    std::int32_t payload = -1;
    const at::Tensor part = part_of(graph, inverse_content(), f, &payload);
    if (!part.defined()) continue;
    status_of(graph, payload, f).fill_(succeeded ? 0.0 : 1.0);
    if (!succeeded) continue;
    part.copy_(block.packed_inverse(side));
    // The bits that the others get: the solver's own has another order in memory, and other
    // roundings.
    block.set_packed_inverse(side, part, preconditioner_.damping());
  }
}

void CurvatureExchange::unpack_inverses(const TaskGraph& graph, const Task& task) {
  for_members(graph, task.first, [&](std::int32_t factor, const at::Tensor& part) {
    if (inverted_here_.contains(factor)) return;
    const bool succeeded = status_of(graph, task.first, factor).item<double>() == 0.0;
    preconditioner_.take_inverse(at(doc::block_of_factor(factor)), doc::side_of_factor(factor),
                                 succeeded ? part : at::Tensor());
  });
}

// ---- directions ----

/// What is no matrix no task inverts.
void CurvatureExchange::invert_diagonals(std::int32_t b) {
  if (!preconditioner_.inverses_due()) return;
  for (const auto side : {doc::FactorSide::a, doc::FactorSide::g})
    if (!preconditioner_.blocks()[at(b)]->is_dense(side))
      guarded([&] { preconditioner_.update_inverse(at(b), side); });
}

void CurvatureExchange::precondition(const TaskGraph& graph, const Task& task) {
  if (!step_.accepted()) return;
  const std::int32_t b = doc::block_of_factor(task.first);
  invert_diagonals(b);
  step_.take_means(at(b));
  preconditioned_here_.insert(b);
  if (preconditioner_.can_precondition(at(b)))
    directions_[at(b)] = preconditioner_.direction(at(b));
  const at::Tensor part = part_of(graph, Content::directions, b);
  if (!part.defined()) return;
  if (!directions_[at(b)]) {
    part.fill_(kNoDirection);
    return;
  }
  if (std::isfinite(directions_[at(b)]->product))
    part.copy_(directions_[at(b)]->direction.reshape({-1}));
  else
    part.fill_(std::numeric_limits<double>::quiet_NaN());
  receive_direction(at(b), part);  // the bits that the others get
}

void CurvatureExchange::receive_direction(std::size_t block, const at::Tensor& part) {
  const CurvatureBlock& b = *preconditioner_.blocks()[block];
  const at::Tensor gradient = b.gradient();
  const at::Tensor direction = part.to(b.dtype()).reshape(gradient.sizes()).clone();
  directions_[block] = {direction, inner_product(direction, gradient)};
}

void CurvatureExchange::unpack_directions(const TaskGraph& graph, const Task& task) {
  if (!step_.accepted()) return;
  for_members(graph, task.first, [&](std::int32_t b, const at::Tensor& part) {
    if (preconditioned_here_.contains(b)) return;
    step_.take_means(at(b));
    const CurvatureBlock& block = *preconditioner_.blocks()[at(b)];
    if (!block.layer().weight.grad().defined() || part[0].item<double>() == kNoDirection) return;
    receive_direction(at(b), part);
  });
}

void CurvatureExchange::clip(const TaskGraph&, const Task&) {
  if (!step_.accepted()) return;
  add_products();
  nu_ = preconditioner_.clip(q_);
  has_directions_ = true;
}

// ---- Levenberg-Marquardt ----

void CurvatureExchange::pack_losses(const TaskGraph&, const Task& task) {
  const at::Tensor& values = memory_.values(task.first);
  values.zero_();
  if (const auto change = preconditioner_.lm()->take_change()) {
    values[0] = *change * share_;
    values[1] = 1;
  }
}

void CurvatureExchange::take_losses(const TaskGraph&, const Task& task) {
  const at::Tensor& values = memory_.values(task.first);
  const auto ranks = values[1].item<double>();
  if (ranks == 0) return;
  if (ranks == plan_->ranks)
    preconditioner_.lm()->observe(values[0].item<double>());
  else
    misuse_ = fmt::format(
        "K-FAC: step {}: observe_loss() was called on {} of {} ranks; call it on all of them",
        preconditioner_.step(), ranks, plan_->ranks);
}

void CurvatureExchange::quadratic_model(const TaskGraph&, const Task& task) {
  const at::Tensor& values = memory_.values(task.first);
  values.zero_();
  if (!step_.accepted()) return;
  share_ = step_.share();
  guarded([&] {
    LmUpdate& lm = *preconditioner_.lm();
    std::vector<at::Tensor> directions(directions_.size());
    for (std::size_t b = 0; b < directions.size(); ++b)
      if (directions_[b]) directions[b] = directions_[b]->direction;
    model_ = lm.model(directions);
    for (std::size_t i = 0; i < model_.curvature.size(); ++i)
      values[static_cast<std::int64_t>(i)] = model_.curvature[i] * share_;
  });
}

void CurvatureExchange::minimise(const TaskGraph&, const Task& task) {
  if (!step_.accepted()) return;
  const at::Tensor& values = memory_.values(task.first);
  for (std::size_t i = 0; i < model_.curvature.size(); ++i)
    model_.curvature[i] = values[static_cast<std::int64_t>(i)].item<double>();
  add_products();
  nu_ = kl_clip_factor(q_, 0, 0);
  if (nu_) preconditioner_.lm()->minimise(model_);
  has_directions_ = true;
}

}  // namespace linerate::torch_adapter
