// Records what is enqueued: tasks with the times that a device took for them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linerate/exec/recorder.hpp"
#include "linerate/exec/streams/stream_device.hpp"
#include "linerate/exec/streams/stream_program.hpp"
#include "linerate/exec/streams/stream_times.hpp"
#include "linerate/exec/variant_names.hpp"

namespace linerate::exec {

/// Stands between a StreamRunner and its device. It sets a mark before and after the work of each
/// task, in the task's stream. It adds the task to a Recorder as a Runner does. While the Recorder
/// keeps nothing, it only passes calls on. It makes no stream and no host wait.
///
/// The waits of a stream come before the first mark, so a task begins when its stream has come to
/// it. A collective begins there, too, and then waits for the streams of the other ranks. It ends
/// when it is over. If the host is slower than the device, it ends when the host has set the mark.
class StepRecording final : public StreamDevice {
 public:
  /// `device` and `recorder` outlive this object, `recorder` following `times`.
  StepRecording(StreamDevice& device, Recorder& recorder, std::shared_ptr<StreamTimes> times,
                std::shared_ptr<const StreamProgram> program);

  /// Before anything of a step of this variant is enqueued, the waits of StreamRunner::fork()
  /// included.
  void begin_step(std::int32_t variant);
  /// Sets a mark: the work of an observed task is in the compute stream, and other tasks may have
  /// waited for just that. The mark gives those tasks' `ready` time. The event of the observed task
  /// itself is added by whoever observes it.
  void note_end(std::uint32_t task);

  void enqueue(StreamId stream, const StreamWork& work) override;
  void record(EventId event, StreamId stream) override { device_.record(event, stream); }
  void wait(StreamId stream, EventId event) override { device_.wait(stream, event); }
  void host_wait(EventId event) override { device_.host_wait(event); }

 private:
  /// The moments at which tasks ended, -1 for those that have none.
  struct Ends {
    std::int32_t variant = -1;
    std::vector<std::int64_t> of_task;
  };

  std::int64_t ready(const StreamWork& work);

  StreamDevice& device_;
  Recorder& recorder_;
  std::shared_ptr<StreamTimes> times_;
  std::shared_ptr<const StreamProgram> program_;
  std::vector<VariantNames> names_;  // by variant
  bool records_ = false;             // this step
  std::int32_t recorded_as_ = 0;     // the Recorder's number for it
  std::int64_t begin_ = -1;          // of this step
  Ends ends_, ends_before_;          // of this step and the one before
};

}  // namespace linerate::exec
