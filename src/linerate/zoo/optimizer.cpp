// LibTorch keeps an optimizer's state by the addresses of parameters. Here it has names, so that a
// checkpoint can be read by another process.
#include "linerate/zoo/optimizer.hpp"

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::zoo {
namespace {

using torch::optim::AdamParamState;
using torch::optim::SGDParamState;

// The rates given here do not matter: at_rate() sets the rate before every step.
std::unique_ptr<torch::optim::Optimizer> make(const TrainOptions& o,
                                              std::vector<at::Tensor> parameters) {
  if (o.optimizer == "sgd")
    return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(0.1)
                                                   .momentum(o.momentum)
                                                   .nesterov(o.momentum > 0)
                                                   .weight_decay(o.weight_decay));
  if (o.optimizer == "adam")
    return std::make_unique<torch::optim::Adam>(
        std::move(parameters), torch::optim::AdamOptions(0.001).weight_decay(o.weight_decay));
  throw UsageError("--optimizer: unknown optimizer \"" + o.optimizer + "\". Known: sgd, adam");
}

}  // namespace

Optimizer::Optimizer(const TrainOptions& options, Named parameters)
    : name_(options.optimizer), parameters_(std::move(parameters)) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  torch_ = make(options, std::move(tensors));
}
Optimizer::~Optimizer() = default;

torch::optim::Optimizer& Optimizer::at_rate(double learning_rate) {
  for (auto& group : torch_->param_groups()) group.options().set_lr(learning_rate);
  return *torch_;
}

void Optimizer::zero_grad() {
  for (const auto& [name, tensor] : parameters_) tensor.mutable_grad() = at::Tensor();
}

Optimizer::Named Optimizer::state() const {
  Named all;
  for (const auto& [name, tensor] : parameters_) {
    const auto found = torch_->state().find(tensor.unsafeGetTensorImpl());
    if (found == torch_->state().end()) continue;
    const torch::optim::OptimizerParamState* const state = found->second.get();
    if (name_ == "sgd") {
      const at::Tensor& momentum = static_cast<const SGDParamState*>(state)->momentum_buffer();
      if (momentum.defined()) all.emplace_back("momentum." + name, momentum);
      continue;
    }
    const auto* adam = static_cast<const AdamParamState*>(state);
    all.emplace_back("mean." + name, adam->exp_avg());
    all.emplace_back("square." + name, adam->exp_avg_sq());
    all.emplace_back("steps." + name, at::scalar_tensor(adam->step(), at::kLong));
  }
  return all;
}

// Takes every array that the parameters need and refuses arrays that are left: they belong to
// another optimizer. A parameter without an array never had a gradient.
void Optimizer::load_state(const Named& state, const std::string& place) {
  std::map<std::string, at::Tensor> by_name(state.begin(), state.end());
  const auto take = [&](const std::string& key, at::IntArrayRef shape) {
    const auto found = by_name.find(key);
    if (found == by_name.end() || found->second.sizes() != shape)
      throw InputError(place, "expected the optimizer's array " + key +
                                  (found == by_name.end() ? ", found none" : " in another shape"));
    const at::Tensor copy = found->second.clone();
    by_name.erase(found);
    return copy;
  };
  auto& live = torch_->state();
  live.clear();
  for (const auto& [name, tensor] : parameters_) {
    if (name_ == "sgd") {
      if (!by_name.contains("momentum." + name)) continue;  // never had a gradient
      auto one = std::make_unique<SGDParamState>();
      one->momentum_buffer(take("momentum." + name, tensor.sizes()));
      live[tensor.unsafeGetTensorImpl()] = std::move(one);
    } else {
      if (!by_name.contains("mean." + name)) continue;
      auto one = std::make_unique<AdamParamState>();
      one->exp_avg(take("mean." + name, tensor.sizes()));
      one->exp_avg_sq(take("square." + name, tensor.sizes()));
      one->step(take("steps." + name, {}).item<std::int64_t>());
      live[tensor.unsafeGetTensorImpl()] = std::move(one);
    }
  }
  if (!by_name.empty())
    throw InputError(place, "found an array of another optimizer: " + by_name.begin()->first);
}

namespace {

/// From `high` to `low` along half a cosine, t in [0, 1].
double cosine(double high, double low, double t) {
  return low + (high - low) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

}  // namespace

// One-cycle over 100 steps at rate .05: .005 at step 0, .05 at step 25, and .00005 at the end.
double RateSchedule::at(std::int64_t step) const {
  if (name == "constant") return rate;
  const double t = static_cast<double>(step) / static_cast<double>(steps);
  if (name == "cosine") return cosine(rate, 0, t);
  constexpr double rise = 0.25;
  return t < rise ? rate * (0.1 + 0.9 * t / rise)
                  : cosine(rate, rate / 1000, (t - rise) / (1 - rise));
}

const std::vector<std::string>& schedules() {
  static const std::vector<std::string> known = {"constant", "cosine", "one-cycle"};
  return known;
}

void check_schedule(const std::string& name) {
  if (std::ranges::find(schedules(), name) != schedules().end()) return;
  throw UsageError("--schedule: unknown schedule \"" + name +
                   "\". Known: " + join(schedules(), ", "));
}

}  // namespace linerate::zoo
