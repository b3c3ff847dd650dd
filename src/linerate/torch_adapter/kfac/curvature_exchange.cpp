#include "linerate/torch_adapter/kfac/curvature_exchange.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::Content;
using doc::Task;
using doc::TaskGraph;

/// In place of a direction whose layer has no inverse yet: its gradient stays as it is. (NaN in one
/// skips the step.)
constexpr double kNoDirection = std::numeric_limits<double>::infinity();

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

class Call : public exec::Operation {
 public:
  using Run = std::function<void(const TaskGraph&, const Task&)>;
  explicit Call(Run run) : run_(std::move(run)) {}
  void run(const TaskGraph& graph, const Task& task) override {
    const c10::NoGradGuard no_grad;
    run_(graph, task);
  }

 private:
  Run run_;
};

}  // namespace

CurvatureExchange::CurvatureExchange(Preconditioner& preconditioner, PayloadMemory& memory,
                                     Step step)
    : preconditioner_(preconditioner), memory_(memory), step_(std::move(step)) {}

void CurvatureExchange::add(exec::Runner& runner, const char* name, Tasks tasks) {
  operations_.push_back(std::make_unique<Call>(
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
}

// ---- a step ----

void CurvatureExchange::begin_round() {
  drop();
  directions_.assign(preconditioner_.blocks().size(), std::nullopt);
  inverted_here_.clear();
  preconditioned_here_.clear();
  nu_.reset();
  q_ = 0;
  has_directions_ = false;
  failure_ = nullptr;
}

void CurvatureExchange::drop() {
  for (const auto& [factor, state] : before_) {
    CurvatureBlock& block = block_of(factor);
    block.load(doc::side_of_factor(factor), state);
  }
  for (const auto& [factor, state] : before_) block_of(factor).restore_inverses();
  before_.clear();
  has_directions_ = false;
}

void CurvatureExchange::remember(std::int32_t factor) {
  if (before_.contains(factor)) return;
  before_.emplace(factor, block_of(factor).save(doc::side_of_factor(factor)));
}

template <typename Work>
void CurvatureExchange::guarded(Work&& work) {
  try {
    work();
  } catch (const Error&) {
    if (!failure_) failure_ = std::current_exception();
  }
}

KfacStep CurvatureExchange::write() {
  const c10::NoGradGuard no_grad;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (!has_directions_)
    throw UsageError(
        "K-FAC: step() without an exchange: call DataParallel::finish() between backward() and it");
  KfacStep report{.step = preconditioner_.step(),
                  .factors = preconditioner_.factors_due(),
                  .inverses = preconditioner_.inverses_due()};
  report.damping = preconditioner_.damping();
  report.q = q_;
  report.nu = nu_.value_or(0);
  report.skipped = !nu_;
  for (std::size_t b = 0; b < directions_.size(); ++b) {
    const CurvatureBlock& block = *preconditioner_.blocks()[b];
    if (!nu_)
      block.layer().weight.mutable_grad().reset();
    else if (directions_[b])
      block.write(directions_[b]->direction, *nu_);
    else if (block.layer().weight.grad().defined())
      report.plain.push_back(block.layer().name);
  }
  has_directions_ = false;
  preconditioner_.end_step(report);
  return report;
}

// ---- payloads ----

CurvatureBlock& CurvatureExchange::block_of(std::int32_t factor) const {
  return *preconditioner_.blocks().at(at(doc::block_of_factor(factor)));
}

std::int64_t CurvatureExchange::elements_of(Content content, std::int32_t member) const {
  if (content == Content::directions)
    return preconditioner_.blocks()[at(member)]->direction_elements();
  const CurvatureBlock& block = block_of(member);
  return content == Content::inverse ? block.inverse_elements(doc::side_of_factor(member))
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
    remember(factor);
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
    remember(f);
    inverted_here_.insert(f);
    CurvatureBlock& block = block_of(f);
    const auto side = doc::side_of_factor(f);
    bool succeeded = false;
    guarded([&] { succeeded = preconditioner_.update_inverse(at(doc::block_of_factor(f)), side); });
    std::int32_t payload = -1;
    const at::Tensor part = part_of(graph, Content::inverse, f, &payload);
    if (!part.defined()) continue;
    const at::Tensor& values = memory_.values(payload);
    values[values.numel() - 1] = succeeded ? 0.0 : 1.0;
    if (succeeded) part.copy_(block.packed_inverse(side));
  }
}

void CurvatureExchange::unpack_inverses(const TaskGraph& graph, const Task& task) {
  const at::Tensor& values = memory_.values(task.first);
  const bool succeeded = values[values.numel() - 1].item<double>() == 0.0;
  for_members(graph, task.first, [&](std::int32_t factor, const at::Tensor& part) {
    if (inverted_here_.contains(factor)) return;
    remember(factor);
    const auto side = doc::side_of_factor(factor);
    if (succeeded) block_of(factor).set_packed_inverse(side, part);
    guarded(
        [&] { preconditioner_.note_inverse(at(doc::block_of_factor(factor)), side, succeeded); });
  });
}

// ---- directions ----

void CurvatureExchange::precondition(const TaskGraph& graph, const Task& task) {
  if (!step_.accepted()) return;
  const std::int32_t b = doc::block_of_factor(task.first);
  step_.take_means(at(b));
  preconditioned_here_.insert(b);
  if (preconditioner_.can_precondition(at(b)))
    directions_[at(b)] = preconditioner_.direction(at(b));
  const at::Tensor part = part_of(graph, Content::directions, b);
  if (!part.defined()) return;
  if (!directions_[at(b)])
    part.fill_(kNoDirection);
  else if (std::isfinite(directions_[at(b)]->product))
    part.copy_(directions_[at(b)]->direction.reshape({-1}));
  else
    part.fill_(std::numeric_limits<double>::quiet_NaN());
}

void CurvatureExchange::unpack_directions(const TaskGraph& graph, const Task& task) {
  if (!step_.accepted()) return;
  for_members(graph, task.first, [&](std::int32_t b, const at::Tensor& part) {
    if (preconditioned_here_.contains(b)) return;
    step_.take_means(at(b));
    const CurvatureBlock& block = *preconditioner_.blocks()[at(b)];
    if (!block.layer().weight.grad().defined() || part[0].item<double>() == kNoDirection) return;
    const at::Tensor gradient = block.gradient();
    const at::Tensor direction = part.to(block.dtype()).reshape(gradient.sizes()).clone();
    directions_[at(b)] = {direction, inner_product(direction, gradient)};
  });
}

void CurvatureExchange::clip(const TaskGraph&, const Task&) {
  if (!step_.accepted()) return;
  for (const auto& direction : directions_)
    if (direction) q_ += direction->product;
  nu_ = preconditioner_.clip(q_);
  has_directions_ = true;
}

}  // namespace linerate::torch_adapter
