// When a message has left over a slow link (set_link). Private to comm.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>

#include "linerate/core/units.hpp"

namespace linerate::comm {

/// The link of one rank. It carries one message after the other, each as long as its frames take.
///
/// A message that is ready finds the link busy or idle. On a busy link it waits for its turn, so a
/// rank that wakes late loses nothing. An idle link saves up to half a millisecond for what comes
/// next, as the token bucket of tools/lab does at 1 Gbit/s. For example, at 1 Gbit/s a chunk of 256
/// KiB takes 2.2 ms. Of three that are ready at 0 on an idle link, the last byte has left at 1.7,
/// 3.9 and 6.1 ms.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kSaved{500};

  explicit Pacer(BytesPerSecond rate) : rate_(rate) {}
  /// When the last byte has left of a message that is ready now. Any thread.
  Clock::time_point departure(std::size_t bytes, Clock::time_point now);

 private:
  const BytesPerSecond rate_;
  std::mutex mutex_;
  Clock::time_point free_at_ = Clock::time_point::min();
};

/// The link that all of this process's communicators send over; null without one.
std::shared_ptr<Pacer> pacer_of_process();
/// A link of its own, for a rank that is a thread; null without one.
std::shared_ptr<Pacer> pacer_of_thread();

}  // namespace linerate::comm
