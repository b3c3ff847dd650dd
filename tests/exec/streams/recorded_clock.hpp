// Times of a simulated device: what the host asks for is written down with what it enqueues, and
// answered from a simulation of the same calls.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "exec/streams/simulated_device.hpp"
#include "linerate/exec/streams/stream_program.hpp"

namespace linerate::support {

/// One unit of a simulation's clock.
inline constexpr double kNsPerUnit = 1e6;

/// Of one rank. Without a simulation nothing is ever over and all times are 0: enough to learn what
/// is asked, which does not depend on the answers. But for the waits at the end: for what was not
/// read before.
class RecordedClock final : public exec::StreamClock {
 public:
  /// `truth` may be null. The device's clock runs at this rate of the host's.
  RecordedClock(RecordedStreams& device, const SimulatedDevices* truth, int rank, double rate)
      : device_(device), truth_(truth), rank_(rank), rate_(rate) {}

  void set(exec::MarkId mark, exec::StreamId stream) override {
    meaning_[mark] = sets;
    device_.calls.push_back({StreamCall::Kind::mark, stream, sets++});
  }
  bool is_over(exec::MarkId mark) override {
    if (!truth_) return false;
    // The host asks right after its last call.
    return truth_->mark_at(rank_, meaning_.at(mark)) <=
           truth_->called_at(rank_, device_.calls.size() - 1);
  }
  void wait_for(exec::MarkId mark) override {
    device_.calls.push_back({StreamCall::Kind::mark_wait, -1, meaning_.at(mark)});
  }
  double ns_between(exec::MarkId first, exec::MarkId then) override {
    if (!truth_) return 0;
    const double units =
        truth_->mark_at(rank_, meaning_.at(then)) - truth_->mark_at(rank_, meaning_.at(first));
    return units * kNsPerUnit * rate_;
  }
  std::int64_t host_ns() override {
    device_.calls.push_back({StreamCall::Kind::host_clock});
    if (!truth_) return 0;
    return std::llround(truth_->clock_at(rank_, read_++) * kNsPerUnit);
  }

  exec::EventId sets = 0;  // so far
  /// How many marks that took.
  std::size_t marks() const { return meaning_.size(); }

 private:
  RecordedStreams& device_;
  const SimulatedDevices* truth_;
  int rank_;
  double rate_;
  std::size_t read_ = 0;                           // how often the host's clock was
  std::map<exec::MarkId, exec::EventId> meaning_;  // the number of its last set()
};

}  // namespace linerate::support
