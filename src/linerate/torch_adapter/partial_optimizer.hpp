// An optimizer's step taken apart: parameters are updated at different times, with the same result.
// Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/torch_adapter/options.hpp"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace linerate::torch_adapter {

/// The facts about one of LibTorch's optimizers that a DataParallel needs, as its groups are now.
SteppedOptimizer described(const torch::optim::Optimizer& optimizer);

/// LibTorch's optimizers update every parameter that has a gradient, all in one step(). Under DeAR
/// the parameters of a part are updated when their gradients have arrived.
///
/// So the optimizer has a twin of the same class. Its parameters are tensors of the same memory,
/// with .grads of their own. A part is updated by a step of the twin in which no other parameter
/// has a gradient there. The twin takes options and state as they are at capture(). Later changes
/// by the program (learning rate schedules) are for the next step. The optimizer itself may be gone
/// when the last part is updated. release() hands the state back.
///
/// For example a program steps at a rate of 0.1, sets the rate to 0.01, and then reads the last
/// layer. The layer's update runs only now, but with 0.1, because the twin took its options at the
/// step.
class PartialOptimizer final : public PartialUpdates {
 public:
  ~PartialOptimizer() override;

  /// Whether it is one of LibTorch's own optimizers that treat each parameter by itself: SGD, Adam,
  /// AdamW, Adagrad, RMSprop. A class derived from them is not, since it may do more.
  static bool can_take_apart(const torch::optim::Optimizer& optimizer);

  /// The optimizer whose step the next capture() takes apart. It need not live longer than that
  /// call.
  void follow(torch::optim::Optimizer& optimizer) { next_ = &optimizer; }
  void capture(const std::vector<std::vector<at::Tensor>>& parts) override;
  void update(const std::vector<std::size_t>& which,
              const std::vector<std::vector<at::Tensor>>& gradients) override;
  /// Gives the state back to the optimizer if that still lives and holds what was captured.
  void release() override;

 private:
  /// A parameter of the optimizer, and the twin's of the same memory; undefined: it is not the
  /// optimizer's.
  struct Doubled {
    at::Tensor parameter, twin;
  };
  bool has_twin() const;
  void make_twin();

  torch::optim::Optimizer* next_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::unique_ptr<torch::optim::Optimizer> twin_;
  std::map<void*, Doubled> doubles_;  // by parameter
  std::vector<std::vector<Doubled>> parts_;
  void* watched_ = nullptr;  // the parameter whose state tells that the optimizer lives
  std::shared_ptr<std::atomic<bool>> alive_;
};

// The updates of a step whose gradients still arrive when the next forward pass begins (DeAR).
// Private to torch_adapter.
//
// In DeAR a step ends when its reduce-scatters are done. The all-gathers run under the next forward
// pass, which needs the last layers last. So each weight waits for its own bucket alone. For
// example three buckets arrive at 2, 5 and 9 ms. The forward pass reads the first layer at 1 ms and
// waits 1 ms for its bucket. It reads the second layer at 6 ms and the third at 10 ms, and waits
// for neither.

/// Turns gradients[k], the mean over ranks, into what parameters[k] is updated with.
using Preparation = std::function<void(const std::vector<at::Tensor>& parameters,
                                       std::vector<at::Tensor>& gradients)>;

/// Does the work while gradients[k] is the .grad of parameters[k]. Then each parameter has its own
/// .grad back, which a later backward pass may have left there for the next step.
void with_gradients(const std::vector<at::Tensor>& parameters, std::vector<at::Tensor> gradients,
                    const std::function<void()>& work);

/// Gradients that are used together, and the tasks that bring them.
struct ArrivingBucket {
  std::vector<exec::TaskId> arrivals;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters, gradients;  // gradients[k] undefined: no update
  std::vector<std::int32_t> layers;               // that are prepared as a whole; -1: of none
  /// On their device, a scalar bool tensor: whether the gradients count as zero. Undefined: no.
  at::Tensor infinite = {};
  std::vector<at::Tensor> arrays = {};  // the buckets' arrays; gradients are views of them
  /// Called between arrival and update; empty: nothing.
  Preparation prepare = {};
};

/// Cuts and joins `buckets` so that all parameters of a layer are in one bucket, with
/// preparation_of(layer). That bucket takes the place of the last bucket that holds some of them,
/// since only then all have arrived. Parameters of no layer stay in their bucket.
std::vector<ArrivingBucket> by_layer(
    const std::vector<ArrivingBucket>& buckets,
    const std::function<Preparation(std::int32_t layer)>& preparation_of);

/// Records that the parameters of these names were updated from `start` to `end`.
void record_update(exec::Recorder& recorder, const std::vector<std::string>& names,
                   std::int64_t start, std::int64_t end);

/// Updates each bucket's parameters before the first operator that reads one of them, or in
/// settle(), whichever comes first. The update runs on the thread that asks, and other threads wait
/// for it. A weight that has other memory since begin() (torch::load, set_data) stays as it is,
/// because the gradients were not for it.
class DelayedUpdates {
 public:
  /// `recorder` may be null, and outlives this object.
  explicit DelayedUpdates(exec::Recorder* recorder);
  ~DelayedUpdates();

  /// An operator is about to read a weight of this bucket. C++ modules have no forward hooks, so a
  /// RecordFunction callback looks at the inputs of every operator. Reads through raw pointers are
  /// not noticed.
  void before_use(std::size_t bucket);
  /// `buckets` in the order in which the next forward pass is expected to need them.
  void begin(exec::StepRunner& runner, std::shared_ptr<PartialUpdates> optimizer,
             std::vector<ArrivingBucket> buckets);
  bool pending() const { return left_ > 0; }
  /// Waits for gradients that are in flight and updates all that is left. Throws what arrival
  /// failed with, also if it failed before an operator.
  void settle();
  /// The stretches of time in which the program was held, waiting and updating, since the last
  /// call. And the part of these in which it waited for gradients, by moments of the runner.
  std::pair<std::vector<HeldSpan>, std::vector<Span>> take_held();

 private:
  void update(std::size_t asked);
  std::vector<std::size_t> to_update_with(std::size_t asked) const;
  /// For the recorder.
  std::int64_t moment() const;

  exec::Recorder* recorder_;
  exec::StepRunner* runner_ = nullptr;
  std::mutex mutex_;  // of everything below
  std::vector<ArrivingBucket> buckets_;
  std::vector<std::vector<const void*>> memory_;  // of their parameters at begin()
  std::vector<bool> done_;
  std::set<const void*> dropped_;  // arrays of this step that were cleared if infinite
  std::atomic<std::size_t> left_ = 0;
  std::exception_ptr failure_;
  std::shared_ptr<PartialUpdates> optimizer_;
  std::vector<HeldSpan> held_;
  std::vector<Span> waits_;
};

}  // namespace linerate::torch_adapter
