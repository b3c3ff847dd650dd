// LibTorch does not tell when an optimizer is destroyed. So capture() replaces one parameter's
// state by a Watched copy, whose destructor clears a flag. release() writes the twins' state back
// only if the flag still stands.
#include "linerate/torch_adapter/partial_optimizer.hpp"

#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

namespace linerate::torch_adapter {
namespace {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::OptimizerParamState;

void* key_of(const at::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }

std::vector<std::vector<void*>> groups_of(torch::optim::Optimizer& optimizer) {
  std::vector<std::vector<void*>> groups;
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    groups.emplace_back();
    for (const at::Tensor& p : group.params()) groups.back().push_back(key_of(p));
  }
  return groups;
}

void take_momentum(SteppedOptimizer& optimizer, const char* name, double momentum,
                   compress::StepsBy with) {
  if (optimizer.steps_by != compress::StepsBy::gradients) return;  // of another group
  optimizer.name = momentum > 0 ? fmt::format("{}(momentum={})", name, momentum) : name;
  if (momentum > 0) optimizer.steps_by = with;
}

/// A parameter's state that clears a flag when it is destroyed: with its optimizer, or because it
/// was replaced. LibTorch reports neither.
template <typename State>
struct Watched : State {
  Watched(const State& state, std::shared_ptr<std::atomic<bool>> flag)
      : State(state), alive(std::move(flag)) {}
  ~Watched() override { *alive = false; }
  std::shared_ptr<std::atomic<bool>> alive;
};

}  // namespace

SteppedOptimizer described(const torch::optim::Optimizer& optimizer) {
  using compress::StepsBy;
  SteppedOptimizer one;
  one.name = "the optimizer";
  one.identity = reinterpret_cast<std::uintptr_t>(&optimizer);
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    one.holds.insert(one.holds.end(), group.params().begin(), group.params().end());
    if (!group.has_options()) continue;
    const OptimizerOptions* options = &group.options();
    if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(options)) {
      take_momentum(one, "SGD", sgd->momentum(), StepsBy::sum);
    } else if (const auto* rms = dynamic_cast<const torch::optim::RMSpropOptions*>(options)) {
      take_momentum(one, "RMSprop", rms->momentum(), StepsBy::average);
    } else if (dynamic_cast<const torch::optim::AdamOptions*>(options)) {
      one.name = "Adam", one.steps_by = StepsBy::adams;
    } else if (dynamic_cast<const torch::optim::AdamWOptions*>(options)) {
      one.name = "AdamW", one.steps_by = StepsBy::adams;
    }
  }
  return one;
}

struct PartialOptimizer::Kind {
  const std::type_info* type;
  std::unique_ptr<torch::optim::Optimizer> (*make)(std::vector<OptimizerParamGroup> groups,
                                                   const OptimizerOptions& defaults);
  std::unique_ptr<OptimizerParamState> (*watched)(const OptimizerParamState* state,
                                                  std::shared_ptr<std::atomic<bool>> alive);
};

struct PartialOptimizer::Part {
  std::vector<at::Tensor> parameters;
  std::unique_ptr<torch::optim::Optimizer> twin;  // null: none of them is the optimizer's
  std::vector<std::size_t> group_of;              // of the optimizer, by group of the twin
  std::vector<void*> keys;                        // of the parameters that the twin has
};

template <typename Optimizer, typename Options, typename State>
PartialOptimizer::Kind PartialOptimizer::kind() {
  return {&typeid(Optimizer),
          [](std::vector<OptimizerParamGroup> groups,
             const OptimizerOptions& defaults) -> std::unique_ptr<torch::optim::Optimizer> {
            return std::make_unique<Optimizer>(std::move(groups),
                                               static_cast<const Options&>(defaults));
          },
          [](const OptimizerParamState* state,
             std::shared_ptr<std::atomic<bool>> alive) -> std::unique_ptr<OptimizerParamState> {
            return std::make_unique<Watched<State>>(
                state ? static_cast<const State&>(*state) : State(), std::move(alive));
          }};
}

const std::vector<PartialOptimizer::Kind>& PartialOptimizer::kinds() {
  namespace optim = torch::optim;
  static const std::vector<Kind> all = {
      kind<optim::SGD, optim::SGDOptions, optim::SGDParamState>(),
      kind<optim::Adam, optim::AdamOptions, optim::AdamParamState>(),
      kind<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>(),
      kind<optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>(),
      kind<optim::RMSprop, optim::RMSpropOptions, optim::RMSpropParamState>()};
  return all;
}

const PartialOptimizer::Kind* PartialOptimizer::kind_of(const torch::optim::Optimizer& optimizer) {
  const auto found = std::find_if(kinds().begin(), kinds().end(),
                                  [&](const Kind& k) { return *k.type == typeid(optimizer); });
  return found == kinds().end() ? nullptr : &*found;
}

PartialOptimizer::PartialOptimizer() = default;
PartialOptimizer::~PartialOptimizer() = default;

bool PartialOptimizer::can_take_apart(const torch::optim::Optimizer& optimizer) {
  return kind_of(optimizer) != nullptr;
}

/// Steps the optimizer if any of its parameters has a gradient. In capture() these are parameters
/// of no part, whose gradients are there already.
void PartialOptimizer::step_what_has_gradients(torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& p : group.params())
      if (p.grad().defined()) return static_cast<void>(optimizer.step());
}

/// Steps the parameters that no part has, then gives each twin the options and state of now. Twins
/// are made anew only if the optimizer, its groups or the parts have changed.
void PartialOptimizer::capture(const std::vector<std::vector<at::Tensor>>& parts) {
  torch::optim::Optimizer& optimizer = *next_;
  step_what_has_gradients(optimizer);
  const Kind& kind = *kind_of(optimizer);
  const bool same = optimizer_ == &optimizer && groups_ == groups_of(optimizer) && fits(parts);
  optimizer_ = &optimizer;
  if (!same) make_twins(kind, parts);
  for (Part& part : parts_) {
    if (!part.twin) continue;
    for (std::size_t g = 0; g < part.group_of.size(); ++g)
      part.twin->param_groups()[g].set_options(
          optimizer.param_groups()[part.group_of[g]].options().clone());
    for (void* key : part.keys) {
      const auto found = optimizer.state().find(key);
      if (found == optimizer.state().end())
        part.twin->state().erase(key);
      else
        part.twin->state()[key] = found->second->clone();
    }
  }
  watch(kind);
}

bool PartialOptimizer::fits(const std::vector<std::vector<at::Tensor>>& parts) const {
  return std::equal(
      parts.begin(), parts.end(), parts_.begin(), parts_.end(),
      [](const std::vector<at::Tensor>& now, const Part& then) {
        return std::equal(
            now.begin(), now.end(), then.parameters.begin(), then.parameters.end(),
            [](const at::Tensor& a, const at::Tensor& b) { return key_of(a) == key_of(b); });
      });
}

void PartialOptimizer::make_twins(const Kind& kind,
                                  const std::vector<std::vector<at::Tensor>>& parts) {
  groups_ = groups_of(*optimizer_);
  parts_.clear();
  for (const std::vector<at::Tensor>& parameters : parts) {
    Part& part = parts_.emplace_back();
    part.parameters = parameters;
    std::vector<OptimizerParamGroup> groups;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<at::Tensor> own;
      for (const at::Tensor& p : parameters)
        if (std::find(groups_[g].begin(), groups_[g].end(), key_of(p)) != groups_[g].end())
          own.push_back(p);
      if (own.empty()) continue;
      for (const at::Tensor& p : own) part.keys.push_back(key_of(p));
      groups.emplace_back(own, optimizer_->param_groups()[g].options().clone());
      part.group_of.push_back(g);
    }
    if (!groups.empty()) part.twin = kind.make(std::move(groups), optimizer_->defaults());
  }
}

void PartialOptimizer::watch(const Kind& kind) {
  watched_ = nullptr;
  for (const Part& part : parts_)
    if (!part.keys.empty()) watched_ = part.keys.front();
  if (!watched_) return;
  alive_ = std::make_shared<std::atomic<bool>>(true);
  auto& state = optimizer_->state()[watched_];
  state = kind.watched(state.get(), alive_);
}

void PartialOptimizer::update(const std::vector<std::size_t>& which,
                              const std::vector<std::vector<at::Tensor>>& gradients) {
  for (std::size_t i = 0; i < which.size(); ++i) update(parts_[which[i]], gradients[i]);
}

/// The twin reads .grad. So the means stand in .grad for its step, and the gradients that a later
/// backward pass may have left there come back afterwards.
void PartialOptimizer::update(Part& part, const std::vector<at::Tensor>& gradients) {
  if (!part.twin) return;
  std::vector<at::Tensor> here = gradients;
  const auto exchange = [&] {
    for (std::size_t k = 0; k < here.size(); ++k)
      std::swap(part.parameters[k].mutable_grad(), here[k]);
  };
  exchange();
  try {
    part.twin->step();
  } catch (...) {
    exchange();
    throw;
  }
  exchange();
}

void PartialOptimizer::release() {
  if (!watched_ || !*alive_) return;
  optimizer_->state().erase(watched_);
  for (Part& part : parts_)
    for (void* key : part.keys) {
      const auto found = part.twin->state().find(key);
      if (found != part.twin->state().end()) optimizer_->state()[key] = std::move(found->second);
    }
  watched_ = nullptr;
}

}  // namespace linerate::torch_adapter
