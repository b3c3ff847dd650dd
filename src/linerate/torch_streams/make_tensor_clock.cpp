#include "linerate/torch_streams/make_tensor_clock.hpp"

#include <vector>

#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_streams/event_clock.hpp"

namespace linerate::torch_streams {
namespace {

class ImmediateClock final : public TensorClock {
 public:
  void follow(std::vector<c10::Stream>) override {}
  void set(exec::MarkId mark, exec::StreamId) override {
    if (set_ns_.size() <= to_index(mark)) set_ns_.resize(to_index(mark) + 1);
    set_ns_[to_index(mark)] = steady_ns();
  }
  bool is_over(exec::MarkId) override { return true; }
  void wait_for(exec::MarkId) override {}
  double ns_between(exec::MarkId first, exec::MarkId then) override {
    return static_cast<double>(set_ns_[to_index(then)] - set_ns_[to_index(first)]);
  }
  std::int64_t host_ns() override { return steady_ns(); }

 private:
  std::vector<std::int64_t> set_ns_;
};

}  // namespace

std::unique_ptr<TensorClock> make_tensor_clock(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<ImmediateClock>();
  return std::make_unique<EventClock>(device.type());
}

}  // namespace linerate::torch_streams
