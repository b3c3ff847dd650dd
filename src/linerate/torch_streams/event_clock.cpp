#include "linerate/torch_streams/event_clock.hpp"

#include <utility>
#include <vector>

#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_streams {

void EventClock::follow(std::vector<c10::Stream> streams) { streams_ = std::move(streams); }

/// Marks are events of BACKEND_DEFAULT, which take times. TorchStreamDevice has others that take
/// none and cost less.
void EventClock::set(exec::MarkId mark, exec::StreamId stream) {
  while (events_.size() <= to_index(mark))
    events_.emplace_back(device_, c10::EventFlag::BACKEND_DEFAULT);
  events_[to_index(mark)].record(streams_.at(to_index(stream)));
}

bool EventClock::is_over(exec::MarkId mark) { return events_.at(to_index(mark)).query(); }

void EventClock::wait_for(exec::MarkId mark) { events_.at(to_index(mark)).synchronize(); }

double EventClock::ns_between(exec::MarkId first, exec::MarkId then) {
  constexpr double kNsPerMs = 1e6;
  return kNsPerMs * events_.at(to_index(first)).elapsedTime(events_.at(to_index(then)));
}

std::int64_t EventClock::host_ns() { return steady_ns(); }

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
