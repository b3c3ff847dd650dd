#include "linerate/torch_streams/event_clock.hpp"

#include <utility>

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

}  // namespace linerate::torch_streams
