#include "linerate/torch_streams/make_tensor_device.hpp"

#include <utility>

#include "linerate/torch_streams/torch_stream_device.hpp"

namespace linerate::torch_streams {
namespace {

/// One stream that is always empty: whatever was enqueued is over.
class ImmediateDevice final : public TensorDevice {
 public:
  explicit ImmediateDevice(TaskWork work) : work_(std::move(work)) {}

  void enqueue(exec::StreamId, const exec::StreamWork& work) override { work_(work); }
  void record(exec::EventId, exec::StreamId) override {}
  void wait(exec::StreamId, exec::EventId) override {}
  void host_wait(exec::EventId) override {}
  void compute_after_caller() override {}
  void caller_after_compute() override {}
  void compute(const std::function<void()>& work) override { work(); }
  std::vector<c10::Stream> streams() const override { return {}; }

 private:
  TaskWork work_;
};

}  // namespace

std::unique_ptr<TensorDevice> make_tensor_device(c10::Device device, std::size_t streams,
                                                 TensorDevice::TaskWork work,
                                                 const std::vector<exec::StreamId>& first) {
  if (device.is_cpu()) return std::make_unique<ImmediateDevice>(std::move(work));
  return std::make_unique<TorchStreamDevice>(device, streams, std::move(work), first);
}

}  // namespace linerate::torch_streams
