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

/// Between a StreamRunner and its device: sets a mark before and after the work of each task, in
/// its stream, and adds the task to a Recorder as a Runner does. Waits of streams come before the
/// first one, so that a task begins when its stream has come to it; a collective then waits for the
/// streams of the other ranks, and ends when it is over or, if the host is slower than the device,
/// when the host has set the mark. Makes nothing wait. While the Recorder keeps nothing it only
/// passes calls on.
class StepRecording final : public StreamDevice {
 public:
  /// `device` and `recorder` outlive this object, `recorder` following `times`.
  StepRecording(StreamDevice& device, Recorder& recorder, std::shared_ptr<StreamTimes> times,
                std::shared_ptr<const StreamProgram> program);

  /// Before anything of a step of this variant is enqueued, the waits of StreamRunner::fork()
  /// included.
  void begin_step(std::int32_t variant);
  /// The work of an observed task of the step is in the compute stream: others may have waited for
  /// just that. Whoever observes it adds it.
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
