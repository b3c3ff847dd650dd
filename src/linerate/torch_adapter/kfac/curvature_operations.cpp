// What each K-FAC task of a Plan does: between payloads, averages, inverses and directions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_adapter/kfac/curvature_exchange.hpp"
#include "linerate/torch_adapter/kfac/kl_clip.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::Content;
using doc::Task;
using doc::TaskGraph;

/// Replaces a direction whose layer has no inverse yet: its gradient stays as it is. (NaN in one
/// skips the step.)
constexpr double kNoDirection = std::numeric_limits<double>::infinity();

}  // namespace

template <typename Work>
void CurvatureExchange::guarded(Work&& work) {
  try {
    work();
  } catch (const std::exception&) {  // LibTorch's, too
    if (!failure_) failure_ = std::current_exception();
  }
}

// ---- payloads ----

CurvatureBlock& CurvatureExchange::block_of(std::int32_t factor) const {
  return *preconditioner_.blocks().at(to_index(doc::block_of_factor(factor)));
}

Content CurvatureExchange::inverse_content() const {
  const bool by_eigen = preconditioner_.options().method == InverseMethod::eigen;
  return by_eigen ? Content::eigen : Content::inverse;
}

std::int64_t CurvatureExchange::elements_of(Content content, std::int32_t member) const {
  if (content == Content::directions)
    return preconditioner_.blocks()[to_index(member)]->direction_elements();
  const CurvatureBlock& block = block_of(member);
  const FactorSide side = doc::side_of_factor(member);
  return doc::holds_inverses(content) ? block.inverse_elements(side)
                                      : block.packed_elements(side) + doc::kFactorCounts;
}

template <typename Visit>
void CurvatureExchange::for_members(const TaskGraph& graph, std::int32_t payload, Visit&& visit) {
  const doc::Payload& p = graph.payloads[to_index(payload)];
  const at::Tensor& values = memory_.values(payload);
  std::int64_t begin = 0;
  for (std::int32_t m = p.begin; m < p.end; ++m) {
    const std::int32_t member = graph.members[to_index(m)];
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
  const doc::Payload& p = graph.payloads[to_index(payload)];
  const auto end = graph.members.begin() + p.end;
  const at::Tensor& values = memory_.values(payload);
  return values[values.numel() - (end - std::find(graph.members.begin() + p.begin, end, factor))];
}

// ---- factors ----

void CurvatureExchange::pack_factors(const TaskGraph& graph, const Task& task) {
  for_members(graph, task.first, [&](std::int32_t factor, const at::Tensor& part) {
    block_of(factor).pack_batch(doc::side_of_factor(factor), part);
  });
}

/// What is not finite is dropped, on every rank alike: all have the same sums.
void CurvatureExchange::average_factors(const TaskGraph& graph, const Task& task) {
  if (task.subject == doc::Subject::payloads)
    return for_members(graph, task.first, [this](std::int32_t factor, const at::Tensor& part) {
      receive_sum(factor, part);
    });
  const std::int32_t last = doc::block_of_factor(task.last);
  for (std::int32_t b = doc::block_of_factor(task.first); b <= last; ++b)
    guarded([&] { preconditioner_.fold_batch(to_index(b)); });
}

void CurvatureExchange::receive_sum(std::int32_t factor, const at::Tensor& part) {
  const std::size_t b = to_index(doc::block_of_factor(factor));
  std::array<at::Tensor, 2>& sums = sums_[b];
  sums[static_cast<std::size_t>(doc::side_of_factor(factor))] = part;
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    if (!sums[static_cast<std::size_t>(side)].defined() &&
        preconditioner_.blocks()[b]->packed_elements(side) > 0)
      return;
  guarded([&] { preconditioner_.fold_sums(b, sums); });
}

// ---- inverses ----

void CurvatureExchange::invert(const TaskGraph& graph, const Task& task) {
  for (std::int32_t f = task.first; f <= task.last; ++f) {
    inverted_here_.insert(f);
    CurvatureBlock& block = block_of(f);
    const auto side = doc::side_of_factor(f);
    bool succeeded = false;
    const std::int64_t start_ns = steady_ns();
    guarded([&] {
      succeeded = preconditioner_.update_inverse(to_index(doc::block_of_factor(f)), side);
    });
    inverse_s_[to_index(f)] = static_cast<double>(steady_ns() - start_ns) * 1e-9;
    std::int32_t payload = -1;
    const at::Tensor part = part_of(graph, inverse_content(), f, &payload);
    if (!part.defined()) continue;
    status_of(graph, payload, f).fill_(succeeded ? 0.0 : 1.0);
    if (!succeeded) continue;
    part.copy_(block.packed_inverse(side));
    // Uses the bits that the others get: the solver's result has another order in memory and other
    // roundings.
    block.set_packed_inverse(side, part, preconditioner_.damping());
  }
}

void CurvatureExchange::unpack_inverses(const TaskGraph& graph, const Task& task) {
  for_members(graph, task.first, [&](std::int32_t factor, const at::Tensor& part) {
    if (inverted_here_.contains(factor)) return;
    const bool succeeded = status_of(graph, task.first, factor).item<double>() == 0.0;
    preconditioner_.take_inverse(to_index(doc::block_of_factor(factor)),
                                 doc::side_of_factor(factor), succeeded ? part : at::Tensor());
  });
}

// ---- directions ----

/// No task inverts factors that are no matrices.
void CurvatureExchange::invert_diagonals(std::int32_t b) {
  if (!preconditioner_.inverses_due()) return;
  for (const auto side : {doc::FactorSide::a, doc::FactorSide::g})
    if (!preconditioner_.blocks()[to_index(b)]->is_dense(side))
      guarded([&] { preconditioner_.update_inverse(to_index(b), side); });
}

void CurvatureExchange::precondition(const TaskGraph& graph, const Task& task) {
  if (!step_.accepted()) return;
  const std::int32_t b = doc::block_of_factor(task.first);
  invert_diagonals(b);
  step_.take_means(to_index(b));
  preconditioned_here_.insert(b);
  if (preconditioner_.can_precondition(to_index(b)))
    directions_[to_index(b)] = preconditioner_.direction(to_index(b));
  const at::Tensor part = part_of(graph, Content::directions, b);
  if (!part.defined()) return;
  if (!directions_[to_index(b)]) {
    part.fill_(kNoDirection);
    return;
  }
  if (std::isfinite(directions_[to_index(b)]->product))
    part.copy_(directions_[to_index(b)]->direction.reshape({-1}));
  else
    part.fill_(std::numeric_limits<double>::quiet_NaN());
  receive_direction(to_index(b), part);  // uses the bits that the others get
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
    step_.take_means(to_index(b));
    const CurvatureBlock& block = *preconditioner_.blocks()[to_index(b)];
    if (!block.layer().weight.grad().defined() || part[0].item<double>() == kNoDirection) return;
    receive_direction(to_index(b), part);
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
  bool made = false;
  guarded([&] {
    LmUpdate& lm = *preconditioner_.lm();
    std::vector<at::Tensor> directions(directions_.size());
    for (std::size_t b = 0; b < directions.size(); ++b)
      if (directions_[b]) directions[b] = directions_[b]->direction;
    model_ = lm.model(directions);
    for (std::size_t i = 0; i < model_.curvature.size(); ++i)
      values[static_cast<std::int64_t>(i)] = model_.curvature[i] * share_;
    made = true;
  });
  // No rank moves by this step then, and the next one ends the run.
  if (!made) values.fill_(std::numeric_limits<double>::quiet_NaN());
}

void CurvatureExchange::minimise(const TaskGraph&, const Task& task) {
  if (!step_.accepted()) return;
  const at::Tensor& values = memory_.values(task.first);
  for (std::size_t i = 0; i < model_.curvature.size(); ++i)
    model_.curvature[i] = values[static_cast<std::int64_t>(i)].item<double>();
  add_products();
  nu_ = kl_clip_factor(q_, 0, 0);
  if (!std::isfinite(model_.curvature[0])) nu_.reset();
  if (nu_) preconditioner_.lm()->minimise(model_);
  has_directions_ = true;
}

}  // namespace linerate::torch_adapter
