// What there is of a device: its order, its memory, what it was asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <mutex>
#include <vector>

#include "simulated_device/order.hpp"
#include "simulated_device/simulated_device.hpp"
#include "simulated_device/stream_pools.hpp"

namespace linerate::simulated {

/// The part of a copy between a device and pinned memory that happens when its stream comes to it:
/// as soon as the host knows that the copy is over.
struct LateCopy {
  int stream;
  std::int64_t at;
  std::function<void()> arrive;
};

struct State {
  std::recursive_mutex mutex;
  Order order;
  StreamPools pools;
  Asked asked;
  EventLog events;
  std::vector<LateCopy> late;
  std::vector<std::int64_t> ns;         // of the device's clock, when a stream has done what it has
  std::vector<int> free_inner;          // streams of back ends that are gone
  int normal = 0, high = 0, inner = 0;  // streams that were given out
  std::int64_t left_out = -1;

  std::int64_t& ns_of(int stream) {
    if (ns.size() <= static_cast<std::size_t>(stream)) ns.resize(stream + 1);
    return ns[stream];
  }
};

/// For ever: tensors may outlive main().
State& state(int device);
using Lock = std::lock_guard<std::recursive_mutex>;

/// Of the calling thread.
struct OfThread {
  int device = 0;
  std::array<int, kDevices> streams{};
  std::vector<std::string> tasks;  // those being enqueued, the innermost last
  std::string task() const { return tasks.empty() ? std::string() : tasks.back(); }
};
OfThread& of_thread();

/// `device` does this in `stream`: order is checked; a launch is counted `launches` times.
void work(int device, int stream, const std::string& name, const std::vector<Range>& reads,
          const std::vector<Range>& writes, std::int64_t launches);
/// The host waits for what an event knew, and late copies arrive.
void host_learns(State& device, const Clock& event);
/// The host waits for all that is in the stream, and that is noted.
void host_waits(int device, int stream, const std::string& reason);
/// A stream waits for what an event knew, unless this wait is to be left out.
void stream_waits(int device, int stream, int first, const Clock& event, std::int64_t event_ns);
/// "name [task]".
std::string in_words(const std::string& name, const std::string& task);

}  // namespace linerate::simulated
