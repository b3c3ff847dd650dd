// The updates of a step whose gradients still arrive when the next forward pass begins (DeAR).
// Private to torch_adapter.
//
// In DeAR a step ends when its reduce-scatters are done. The all-gathers run under the next forward
// pass, which needs the last layers last. So each weight waits for its own bucket alone. For
// example three buckets arrive at 2, 5 and 9 ms. The forward pass reads the first layer at 1 ms and
// waits 1 ms for its bucket. It reads the second layer at 6 ms and the third at 10 ms, and waits
// for neither.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/exec/step_runner.hpp"
#include "linerate/torch_adapter/partial_updates.hpp"
#include "linerate/torch_adapter/step_report.hpp"
#include "linerate/torch_adapter/weight_gate.hpp"

namespace linerate::torch_adapter {

/// Turns gradients[k], the mean over ranks, into what parameters[k] is updated with.
using Preparation = std::function<void(const std::vector<at::Tensor>& parameters,
                                       std::vector<at::Tensor>& gradients)>;

/// Gradients that are used together, and the tasks that bring them.
struct ArrivingBucket {
  std::vector<exec::TaskId> arrivals;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters, gradients;  // gradients[k] undefined: no update
  /// On their device, a scalar bool tensor: whether the gradients count as zero. Undefined: no.
  at::Tensor infinite = {};
  std::vector<at::Tensor> arrays = {};  // the buckets' arrays; gradients are views of them
  /// Called between arrival and update; empty: nothing.
  Preparation prepare = {};
};

/// Cuts and joins `buckets` so that all parameters of a layer are in one bucket, with
/// preparation_of(layer). That bucket takes the place of the last bucket that holds some of them,
/// since only then all have arrived. `layer_of` is -1 for other parameters, which stay in their
/// bucket.
std::vector<ArrivingBucket> by_layer(
    const std::vector<ArrivingBucket>& buckets,
    const std::function<std::int32_t(const at::Tensor& parameter)>& layer_of,
    const std::function<Preparation(std::int32_t layer)>& preparation_of);

/// Updates each bucket's parameters before the first operator that reads one of them, or in
/// settle(), whichever comes first. The update runs on the thread that asks, and other threads wait
/// for it. A weight that has other memory since begin() (torch::load, set_data) stays as it is,
/// because the gradients were not for it.
class DelayedUpdates {
 public:
  /// `recorder` may be null, and outlives this object.
  explicit DelayedUpdates(exec::Recorder* recorder);

  /// `buckets` in the order in which the next forward pass is expected to need them.
  void begin(exec::StepRunner& runner, std::shared_ptr<PartialUpdates> optimizer,
             std::vector<ArrivingBucket> buckets);
  bool pending() const { return left_ > 0; }
  /// Waits for gradients that are in flight and updates all that is left. Throws what arrival
  /// failed with, also if it failed before an operator.
  void settle();
  /// The stretches of time in which the program was held, waiting and updating, since the last
  /// call.
  std::vector<HeldSpan> take_held();
  /// The part of these in which it waited for gradients, by moments of the runner.
  std::vector<Span> take_waits();

 private:
  void before_use(std::size_t bucket);
  void update(std::size_t bucket);
  std::vector<std::size_t> to_update_with(std::size_t bucket) const;
  bool has_arrived(const ArrivingBucket& bucket) const;
  /// For the recorder.
  std::int64_t moment() const;
  void end_update(std::size_t bucket, std::int64_t start, std::int64_t end);
  void drop_replaced(std::size_t bucket);
  void drop_infinite(ArrivingBucket& bucket);

  exec::Recorder* recorder_;
  exec::StepRunner* runner_ = nullptr;
  std::mutex mutex_;  // of everything below
  std::vector<ArrivingBucket> buckets_;
  std::vector<std::vector<const void*>> memory_;  // of their parameters at begin()
  std::vector<bool> done_;
  std::set<const void*> dropped_;  // arrays of this step that drop_infinite() has seen
  std::atomic<std::size_t> left_ = 0;
  std::exception_ptr failure_;
  std::shared_ptr<PartialUpdates> optimizer_;
  std::vector<HeldSpan> held_;
  std::vector<Span> waits_;
  WeightGate gate_;  // last: gone before what its callback uses
};

}  // namespace linerate::torch_adapter
