// A device that runs nothing: it writes down what a StreamRunner asks of it.
#pragma once

#include <memory>
#include <vector>

#include "linerate/exec/streams/stream_runner.hpp"

namespace linerate::support {

struct StreamCall {
  /// The last three are of an exec::StreamClock.
  enum class Kind : std::uint8_t { enqueue, record, wait, host_wait, mark, mark_wait, host_clock };
  Kind kind = Kind::enqueue;
  exec::StreamId stream = -1;
  exec::EventId event = -1;  // of a mark: its number among all that were set
  exec::TaskId id = {};
  std::int32_t variant = 0;

  bool operator==(const StreamCall&) const = default;
};

class RecordedStreams : public exec::StreamDevice {
 public:
  explicit RecordedStreams(const doc::Plan& plan) : plan_(plan) {}

  void enqueue(exec::StreamId stream, const exec::StreamWork& work) override {
    const auto variant = static_cast<std::int32_t>(&work.graph - plan_.variants.data());
    calls.push_back({StreamCall::Kind::enqueue, stream, -1, work.id, variant});
  }
  void record(exec::EventId event, exec::StreamId stream) override {
    calls.push_back({StreamCall::Kind::record, stream, event});
  }
  void wait(exec::StreamId stream, exec::EventId event) override {
    calls.push_back({StreamCall::Kind::wait, stream, event});
  }
  void host_wait(exec::EventId event) override {
    calls.push_back({StreamCall::Kind::host_wait, -1, event});
  }

  std::vector<StreamCall> calls;

 private:
  const doc::Plan& plan_;
};

/// What every rank enqueues.
struct StreamJob {
  std::shared_ptr<const doc::Plan> plan;
  std::vector<std::shared_ptr<const exec::StreamProgram>> programs;  // by rank
  std::vector<std::vector<StreamCall>> calls;                        // by rank
  std::vector<exec::StreamCounts> counts;                            // by rank
};

}  // namespace linerate::support
