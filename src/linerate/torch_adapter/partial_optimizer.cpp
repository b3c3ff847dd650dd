// LibTorch does not tell when an optimizer is destroyed. So capture() replaces one parameter's
// state by a Watched copy, whose destructor clears a flag. release() writes the twins' state back
// only if the flag still stands.
#include "linerate/torch_adapter/partial_optimizer.hpp"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <typeinfo>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/kfac/weight_table.hpp"
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

namespace linerate::torch_adapter {
namespace {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::OptimizerParamState;

void* key_of(const at::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }

/// A parameter's state that clears a flag when it is destroyed: with its optimizer, or because it
/// was replaced. LibTorch reports neither.
template <typename State>
struct Watched : State {
  Watched(const State& state, std::shared_ptr<std::atomic<bool>> flag)
      : State(state), alive(std::move(flag)) {}
  ~Watched() override { *alive = false; }
  std::shared_ptr<std::atomic<bool>> alive;
};

/// What is made of each of the optimizers that can be taken apart.
struct OptimizerKind {
  const std::type_info* type;
  std::unique_ptr<torch::optim::Optimizer> (*make)(std::vector<OptimizerParamGroup> groups,
                                                   const OptimizerOptions& defaults);
  std::unique_ptr<OptimizerParamState> (*watched)(const OptimizerParamState* state,
                                                  std::shared_ptr<std::atomic<bool>> alive);
};

template <typename Optimizer, typename Options, typename State>
OptimizerKind kind_from() {
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

const OptimizerKind* kind_of(const torch::optim::Optimizer& optimizer) {
  namespace optim = torch::optim;
  static const std::array all = {
      kind_from<optim::SGD, optim::SGDOptions, optim::SGDParamState>(),
      kind_from<optim::Adam, optim::AdamOptions, optim::AdamParamState>(),
      kind_from<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>(),
      kind_from<optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>(),
      kind_from<optim::RMSprop, optim::RMSpropOptions, optim::RMSpropParamState>()};
  for (const OptimizerKind& kind : all)
    if (*kind.type == typeid(optimizer)) return &kind;
  return nullptr;
}

}  // namespace

SteppedOptimizer described(const torch::optim::Optimizer& optimizer) {
  using compress::StepsBy;
  SteppedOptimizer one;
  one.name = "the optimizer";
  one.identity = reinterpret_cast<std::uintptr_t>(&optimizer);
  const auto take_momentum = [&one](const char* name, double momentum, StepsBy with) {
    if (one.steps_by != StepsBy::gradients) return;  // of another group
    one.name = momentum > 0 ? fmt::format("{}(momentum={})", name, momentum) : name;
    if (momentum > 0) one.steps_by = with;
  };
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    one.holds.insert(one.holds.end(), group.params().begin(), group.params().end());
    if (!group.has_options()) continue;
    const OptimizerOptions* options = &group.options();
    if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(options)) {
      take_momentum("SGD", sgd->momentum(), StepsBy::sum);
    } else if (const auto* rms = dynamic_cast<const torch::optim::RMSpropOptions*>(options)) {
      take_momentum("RMSprop", rms->momentum(), StepsBy::average);
    } else if (dynamic_cast<const torch::optim::AdamOptions*>(options)) {
      one.name = "Adam", one.steps_by = StepsBy::adams;
    } else if (dynamic_cast<const torch::optim::AdamWOptions*>(options)) {
      one.name = "AdamW", one.steps_by = StepsBy::adams;
    }
  }
  return one;
}

PartialOptimizer::~PartialOptimizer() = default;

bool PartialOptimizer::can_take_apart(const torch::optim::Optimizer& optimizer) {
  return kind_of(optimizer) != nullptr;
}

/// Steps the parameters that no part has, then gives the twin the options and state of now.
void PartialOptimizer::capture(const std::vector<std::vector<at::Tensor>>& parts) {
  optimizer_ = next_;
  if (std::ranges::any_of(optimizer_->param_groups(), [](const OptimizerParamGroup& group) {
        return std::ranges::any_of(group.params(),
                                   [](const at::Tensor& p) { return p.grad().defined(); });
      }))
    optimizer_->step();
  if (!has_twin()) make_twin();
  for (std::size_t g = 0; g < twin_->param_groups().size(); ++g)
    twin_->param_groups()[g].set_options(optimizer_->param_groups()[g].options().clone());
  parts_.clear();
  watched_ = nullptr;
  for (const std::vector<at::Tensor>& parameters : parts) {
    std::vector<Doubled>& part = parts_.emplace_back();
    for (const at::Tensor& p : parameters) {
      const auto found = doubles_.find(key_of(p));
      part.push_back(found == doubles_.end() ? Doubled{} : found->second);
      if (found == doubles_.end()) continue;
      watched_ = key_of(p);
      const auto state = optimizer_->state().find(key_of(p));
      if (state == optimizer_->state().end())
        twin_->state().erase(key_of(found->second.twin));
      else
        twin_->state()[key_of(found->second.twin)] = state->second->clone();
    }
  }
  if (!watched_) return;
  alive_ = std::make_shared<std::atomic<bool>>(true);
  auto& state = optimizer_->state()[watched_];
  state = kind_of(*optimizer_)->watched(state.get(), alive_);
}

/// Whether the twin is one of this optimizer, of its parameters where they lie now.
bool PartialOptimizer::has_twin() const {
  const auto is_double = [this](const at::Tensor& p, const at::Tensor& twin) {
    const auto found = doubles_.find(key_of(p));
    return found != doubles_.end() && found->second.twin.is_same(twin) &&
           p.const_data_ptr() == twin.const_data_ptr() && p.sizes() == twin.sizes();
  };
  if (!twin_ || typeid(*twin_) != typeid(*optimizer_)) return false;
  const auto &groups = optimizer_->param_groups(), &twins = twin_->param_groups();
  return std::ranges::equal(groups, twins,
                            [&](const OptimizerParamGroup& group, const OptimizerParamGroup& twin) {
                              return std::ranges::equal(group.params(), twin.params(), is_double);
                            });
}

void PartialOptimizer::make_twin() {
  doubles_.clear();
  std::vector<OptimizerParamGroup> groups;
  for (const OptimizerParamGroup& group : optimizer_->param_groups()) {
    std::vector<at::Tensor> twins;
    for (const at::Tensor& p : group.params()) {
      twins.push_back(p.detach());
      doubles_[key_of(p)] = {p, twins.back()};
    }
    groups.emplace_back(twins, group.options().clone());
  }
  twin_ = kind_of(*optimizer_)->make(std::move(groups), optimizer_->defaults());
}

/// The twin's step updates what has a gradient there: the parameters of these parts.
void PartialOptimizer::update(const std::vector<std::size_t>& which,
                              const std::vector<std::vector<at::Tensor>>& gradients) {
  const auto clear = c10::make_scope_exit([&] {
    for (const std::size_t i : which)
      for (const Doubled& one : parts_[i])
        if (one.twin.defined()) one.twin.mutable_grad().reset();
  });
  for (std::size_t i = 0; i < which.size(); ++i)
    for (std::size_t k = 0; k < parts_[which[i]].size(); ++k)
      if (const at::Tensor& twin = parts_[which[i]][k].twin; twin.defined())
        twin.mutable_grad() = gradients[i][k];
  twin_->step();
}

void PartialOptimizer::release() {
  if (!watched_ || !*alive_) return;
  optimizer_->state().erase(watched_);
  for (const std::vector<Doubled>& part : parts_)
    for (const Doubled& one : part) {
      if (!one.twin.defined()) continue;
      const auto found = twin_->state().find(key_of(one.twin));
      if (found != twin_->state().end())
        optimizer_->state()[key_of(one.parameter)] = std::move(found->second);
    }
  watched_ = nullptr;
}

void with_gradients(const std::vector<at::Tensor>& parameters, std::vector<at::Tensor> gradients,
                    const std::function<void()>& work) {
  const auto exchange = [&] {
    for (std::size_t k = 0; k < parameters.size(); ++k)
      std::swap(parameters[k].mutable_grad(), gradients[k]);
  };
  exchange();
  const auto back = c10::make_scope_exit(exchange);
  work();
}

// A RecordFunction callback sees each operator that is about to read a weight whose update waits,
// and calls before_use(). That waits for the bucket's gradients, steps the optimizer for these
// parameters alone (PartialUpdates), and lets the operator go on. settle() does the same for all
// buckets that no operator has asked for.

namespace {

void append(const ArrivingBucket& from, std::size_t k, ArrivingBucket& to) {
  for (const exec::TaskId& arrival : from.arrivals)
    if (std::ranges::find(to.arrivals, arrival) == to.arrivals.end())
      to.arrivals.push_back(arrival);
  to.infinite = from.infinite;
  if (to.arrays.empty() || !to.arrays.back().is_same(from.arrays.at(0)))
    to.arrays.push_back(from.arrays.at(0));
  to.names.push_back(from.names[k]);
  to.parameters.push_back(from.parameters[k]);
  to.gradients.push_back(from.gradients[k]);
  to.layers.push_back(from.layers[k]);
}

}  // namespace

/// Puts the parameters of a layer that needs a preparation into a bucket of their own. K-FAC needs
/// a layer's weight and bias together, and a Plan's buckets may have parted them. The new bucket
/// waits for all arrivals of its parts, and stands after the last bucket that has one.
///
/// Example: layer 5 has its weight in bucket 0 and its bias in bucket 1. Bucket 1 also has a norm's
/// scale, which is of no such layer. The buckets are then bucket 0's rest, bucket 1's rest with the
/// scale, and layer 5's. An update of layer 5 waits for both arrivals.
std::vector<ArrivingBucket> by_layer(
    const std::vector<ArrivingBucket>& buckets,
    const std::function<Preparation(std::int32_t)>& preparation_of) {
  std::map<std::int32_t, ArrivingBucket> layers;
  std::map<std::int32_t, std::size_t> last;  // bucket
  std::vector<ArrivingBucket> rests(buckets.size()), all;
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (std::size_t k = 0; k < buckets[b].parameters.size(); ++k) {
      const std::int32_t layer = buckets[b].layers[k];
      if (layer >= 0) last[layer] = b;
      append(buckets[b], k, layer < 0 ? rests[b] : layers[layer]);
    }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (!rests[b].parameters.empty()) all.push_back(std::move(rests[b]));
    for (auto& [layer, bucket] : layers) {
      if (last[layer] != b) continue;
      bucket.prepare = preparation_of(layer);
      all.push_back(std::move(bucket));
    }
  }
  return all;
}

void record_update(exec::Recorder& recorder, const std::vector<std::string>& names,
                   std::int64_t start, std::int64_t end) {
  recorder.add({.kind = doc::TaskKind::update,
                .resource = doc::Resource::compute,
                .set = recorder.set_id(names),
                .start_ns = start,
                .end_ns = end});
}

namespace {

/// A weight that waits for the update of its bucket.
struct WaitingWeight {
  DelayedUpdates* updates;
  std::size_t bucket;
};

std::unique_ptr<at::ObserverContext> update_first(const at::RecordFunction& fn);

WeightTable<WaitingWeight>& waiting_weights() {
  static auto* const whole = new WeightTable<WaitingWeight>(  // outlives statics that hold models
      at::RecordFunctionCallback(update_first)
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  return *whole;
}

std::unique_ptr<at::ObserverContext> update_first(const at::RecordFunction& fn) {
  for (const WaitingWeight& weight : waiting_weights().read_by(fn))
    weight.updates->before_use(weight.bucket);
  return nullptr;
}

}  // namespace

DelayedUpdates::DelayedUpdates(exec::Recorder* recorder) : recorder_(recorder) {}

DelayedUpdates::~DelayedUpdates() {
  waiting_weights().remove([this](const WaitingWeight& w) { return w.updates == this; });
}

/// Notes where each parameter's memory is, has the optimizer take down its options for this step,
/// and watches the weights.
void DelayedUpdates::begin(exec::StepRunner& runner, std::shared_ptr<PartialUpdates> optimizer,
                           std::vector<ArrivingBucket> buckets) {
  const std::lock_guard lock(mutex_);
  runner_ = &runner;
  buckets_ = std::move(buckets);
  done_.assign(buckets_.size(), false);
  dropped_.clear();
  std::vector<std::vector<at::Tensor>> parts;
  memory_.clear();
  for (const ArrivingBucket& bucket : buckets_) {
    parts.push_back(bucket.parameters);
    memory_.emplace_back();
    for (const at::Tensor& p : bucket.parameters) memory_.back().push_back(p.const_data_ptr());
  }
  optimizer_ = std::move(optimizer);
  optimizer_->capture(parts);
  left_ = buckets_.size();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const at::Tensor& weight : buckets_[b].parameters)
      waiting_weights().add(weight, {this, b});
}

void DelayedUpdates::before_use(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  if (failure_ || bucket >= done_.size() || done_[bucket]) return;
  try {
    if (is_capturing(buckets_[bucket].parameters.front().device()))
      throw UsageError(
          "expected updates to be done before a graph is captured, found one that is due and whose "
          "weights the graph reads; call settle() before the capture");
    runner_->compute([&] { update(bucket); });
  } catch (const std::exception& e) {
    // RecordFunction swallows exceptions, so the next call of the DataParallel throws this one.
    failure_ = std::current_exception();
    log::warning(fmt::format("a weight was read that could not be updated: {}", e.what()));
  }
}

/// Waits for a bucket's gradients and updates its parameters. The mutex is held all the while,
/// because an operator on another thread must not read weights that are being written.
void DelayedUpdates::update(std::size_t asked) {
  const at::DisableRecordFunctionGuard own_operators_pass;
  const c10::NoGradGuard no_grad;
  const std::int64_t asked_ns = steady_ns(), asked_at = runner_->moment();
  for (const exec::TaskId& arrival : buckets_[asked].arrivals) runner_->wait_for(arrival);
  const std::int64_t start_ns = steady_ns();
  waits_.push_back({asked_at, runner_->moment()});
  const std::int64_t start = moment();
  const std::vector<std::size_t> which = to_update_with(asked);
  std::vector<std::vector<at::Tensor>> gradients;
  for (const std::size_t b : which) {
    ArrivingBucket& updated = buckets_[b];
    for (std::size_t k = 0; k < updated.parameters.size(); ++k)
      if (updated.parameters[k].const_data_ptr() != memory_[b][k]) updated.gradients[k].reset();
    // Several buckets may view one array, which is cleared once.
    if (updated.infinite.defined())
      for (const at::Tensor& array : updated.arrays)
        if (dropped_.insert(array.const_data_ptr()).second) array.masked_fill_(updated.infinite, 0);
    if (updated.prepare) updated.prepare(updated.parameters, updated.gradients);
    gradients.push_back(std::move(updated.gradients));
  }
  optimizer_->update(which, gradients);
  const std::int64_t end_ns = steady_ns();
  held_.push_back({asked_ns, start_ns, end_ns});
  const std::int64_t end = moment();
  for (const std::size_t b : which) {
    ArrivingBucket& bucket = buckets_[b];
    if (recorder_) record_update(*recorder_, bucket.names, start, end);
    done_[b] = true;
    waiting_weights().remove(
        [&](const WaitingWeight& w) { return w.updates == this && w.bucket == b; });
    bucket.gradients.clear();
    bucket.prepare = {};
    --left_;
  }
  if (left_ == 0) optimizer_->release();
}

/// The buckets to update now: the one that is asked for, and perhaps others that have arrived. An
/// optimizer with a long way to an update (Python's) goes that way once for all of them. There are
/// two exceptions. A recording shows a task for each bucket, so each is updated alone. A bucket
/// with a preparation waits until it is asked for, because the preparation takes long itself.
std::vector<std::size_t> DelayedUpdates::to_update_with(std::size_t asked) const {
  std::vector<std::size_t> which{asked};
  if (!optimizer_->is_shorter_together() || (recorder_ && recorder_->keeps())) return which;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (b != asked && !done_[b] && !buckets_[b].prepare &&
        std::ranges::all_of(buckets_[b].arrivals,
                            [this](const exec::TaskId& one) { return runner_->is_done(one); }))
      which.push_back(b);
  return which;
}

std::int64_t DelayedUpdates::moment() const { return recorder_ ? recorder_->now() : 0; }

void DelayedUpdates::settle() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (left_ == 0) return;
  runner_->compute([this] {
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      if (!done_[b]) update(b);
  });
}

std::pair<std::vector<HeldSpan>, std::vector<Span>> DelayedUpdates::take_held() {
  const std::lock_guard lock(mutex_);
  return {std::exchange(held_, {}), std::exchange(waits_, {})};
}

}  // namespace linerate::torch_adapter
