// WeightGate calls before_use() when an operator is about to read a weight whose update waits.
// before_use() waits for the bucket's gradients, steps the optimizer for these parameters alone
// (PartialUpdates), and lets the operator go on. settle() does the same for all buckets that no
// operator has asked for.
#include "linerate/torch_adapter/delayed_updates.hpp"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/torch_streams/named_device.hpp"

namespace linerate::torch_adapter {

namespace {

void append(const ArrivingBucket& from, std::size_t k, ArrivingBucket& to) {
  for (const exec::TaskId& arrival : from.arrivals)
    if (std::find(to.arrivals.begin(), to.arrivals.end(), arrival) == to.arrivals.end())
      to.arrivals.push_back(arrival);
  to.infinite = from.infinite;
  if (to.arrays.empty() || !to.arrays.back().is_same(from.arrays.at(0)))
    to.arrays.push_back(from.arrays.at(0));
  to.names.push_back(from.names[k]);
  to.parameters.push_back(from.parameters[k]);
  to.gradients.push_back(from.gradients[k]);
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
    const std::function<std::int32_t(const at::Tensor&)>& layer_of,
    const std::function<Preparation(std::int32_t)>& preparation_of) {
  std::map<std::int32_t, ArrivingBucket> layers;
  std::map<std::int32_t, std::size_t> last;  // bucket
  std::vector<ArrivingBucket> rests(buckets.size()), all;
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (std::size_t k = 0; k < buckets[b].parameters.size(); ++k) {
      const std::int32_t layer = layer_of(buckets[b].parameters[k]);
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

DelayedUpdates::DelayedUpdates(exec::Recorder* recorder)
    : recorder_(recorder), gate_([this](std::size_t bucket) { before_use(bucket); }) {}

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
  for (std::size_t b = 0; b < buckets_.size(); ++b) gate_.watch(buckets_[b].parameters, b);
}

void DelayedUpdates::before_use(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  if (failure_ || bucket >= done_.size() || done_[bucket]) return;
  try {
    if (torch_streams::is_capturing(buckets_[bucket].parameters.front().device()))
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
void DelayedUpdates::update(std::size_t bucket) {
  const at::DisableRecordFunctionGuard own_operators_pass;
  const c10::NoGradGuard no_grad;
  const std::int64_t asked_ns = steady_ns(), asked = runner_->moment();
  for (const exec::TaskId& arrival : buckets_[bucket].arrivals) runner_->wait_for(arrival);
  const std::int64_t start_ns = steady_ns();
  waits_.push_back({asked, runner_->moment()});
  const std::int64_t start = moment();
  const std::vector<std::size_t> which = to_update_with(bucket);
  std::vector<std::vector<at::Tensor>> gradients;
  for (const std::size_t b : which) {
    ArrivingBucket& updated = buckets_[b];
    drop_replaced(b);
    drop_infinite(updated);
    if (updated.prepare) updated.prepare(updated.parameters, updated.gradients);
    gradients.push_back(std::move(updated.gradients));
  }
  optimizer_->update(which, gradients);
  const std::int64_t end_ns = steady_ns();
  held_.push_back({asked_ns, start_ns, end_ns});
  const std::int64_t end = moment();
  for (const std::size_t b : which) end_update(b, start, end);
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
    if (b != asked && !done_[b] && !buckets_[b].prepare && has_arrived(buckets_[b]))
      which.push_back(b);
  return which;
}

bool DelayedUpdates::has_arrived(const ArrivingBucket& bucket) const {
  return std::all_of(bucket.arrivals.begin(), bucket.arrivals.end(),
                     [this](const exec::TaskId& arrival) { return runner_->is_done(arrival); });
}

std::int64_t DelayedUpdates::moment() const { return recorder_ ? recorder_->now() : 0; }

void DelayedUpdates::end_update(std::size_t index, std::int64_t start, std::int64_t end) {
  ArrivingBucket& bucket = buckets_[index];
  if (recorder_)
    recorder_->add({.kind = doc::TaskKind::update,
                    .resource = doc::Resource::compute,
                    .set = recorder_->set_id(bucket.names),
                    .start_ns = start,
                    .end_ns = end});
  done_[index] = true;
  gate_.forget(index);
  bucket.gradients.clear();
  bucket.prepare = {};
  --left_;
}

void DelayedUpdates::drop_replaced(std::size_t index) {
  ArrivingBucket& bucket = buckets_[index];
  for (std::size_t k = 0; k < bucket.parameters.size(); ++k)
    if (bucket.parameters[k].const_data_ptr() != memory_[index][k]) bucket.gradients[k].reset();
}

/// Sets the gradients to zero on the device if the step's means were not finite. Several buckets
/// may view one array, which is cleared once.
void DelayedUpdates::drop_infinite(ArrivingBucket& bucket) {
  if (!bucket.infinite.defined()) return;
  for (const at::Tensor& array : bucket.arrays)
    if (dropped_.insert(array.const_data_ptr()).second) array.masked_fill_(bucket.infinite, 0);
}

void DelayedUpdates::settle() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (left_ == 0) return;
  runner_->compute([this] {
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      if (!done_[b]) update(b);
  });
}

std::vector<HeldSpan> DelayedUpdates::take_held() {
  const std::lock_guard lock(mutex_);
  return std::exchange(held_, {});
}

std::vector<Span> DelayedUpdates::take_waits() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waits_, {});
}

}  // namespace linerate::torch_adapter
