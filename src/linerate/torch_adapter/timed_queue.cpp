// Times work on a model's device, as the mean over ranks, for the probes of codecs and of K-FAC's
// work. QueueTimer does the timing. While it enqueues the timed work, the device multiplies
// matrices (filler()), so that the host's launches do not count.
#include "linerate/torch_adapter/timed_queue.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <utility>

#include "linerate/calibrate/call_train.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_streams/make_tensor_clock.hpp"
#include "linerate/torch_streams/make_tensor_device.hpp"
#include "linerate/torch_streams/named_device.hpp"

namespace linerate::torch_adapter {
namespace {

/// Rounds on a device and on a processor, whose times repeat well and take long.
constexpr int kTimedRounds = 5, kTimedRoundsOfProcessors = 3;

/// One product of matrices, 17 GFlop: 0.3 ms on an H100.
std::function<void()> filler(c10::Device device) {
  if (device.is_cpu()) return {};
  constexpr std::int64_t kRows = 2048;
  const at::Tensor x = at::zeros({kRows, kRows}, at::TensorOptions().device(device));
  return [x, product = at::zeros_like(x)]() mutable { at::mm_out(product, x, x); };
}

std::shared_ptr<torch_streams::TensorClock> clock_of(c10::Device device) {
  std::shared_ptr<torch_streams::TensorClock> clock = torch_streams::make_tensor_clock(device);
  clock->follow(torch_streams::make_tensor_device(device, 1, {})->streams());
  return clock;
}

/// A timer for the device. A device that does not work shows it at its first use, which is here.
exec::QueueTimer working_timer(c10::Device device) {
  try {
    return {clock_of(device), filler(device)};
  } catch (const c10::Error& e) {
    throw DeviceError(
        fmt::format("device {}: expected one that computes, found: {}; check its driver, and "
                    "whether this PyTorch was built for it",
                    device.str(), e.what_without_backtrace()));
  }
}

}  // namespace

TimedQueue::TimedQueue(c10::Device device) : TimedQueue(device, working_timer(device)) {}

TimedQueue::TimedQueue(c10::Device device, exec::QueueTimer timer)
    : device_(device), timer_(std::move(timer)) {
  if (device.is_cpu()) as_device_.emplace();
}

std::string TimedQueue::type() const { return torch_streams::type_name(device_); }

std::vector<exec::CallTimes> TimedQueue::time(comm::Communicator& communicator,
                                              const std::vector<exec::QueuedCalls>& work) {
  communicator.barrier("work of a device")->wait();
  std::vector<exec::CallTimes> found =
      timer_.time(work, timer_.is_immediate() ? kTimedRoundsOfProcessors : kTimedRounds);
  std::vector<double> of_all;
  for (const exec::CallTimes& one : found)
    of_all.insert(of_all.end(), {one.device_s, one.host_s, one.was_queued ? 1.0 : 0.0});
  calibrate::mean_over_ranks(communicator, of_all);
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i] = {of_all[3 * i], of_all[3 * i + 1], of_all[3 * i + 2] == 1};
  return found;
}

}  // namespace linerate::torch_adapter
