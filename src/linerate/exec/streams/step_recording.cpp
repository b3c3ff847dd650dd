// Records the tasks of a step that runs in streams. Each task has a mark before and after it in its
// stream. Times are numbers of moments until StreamTimes has read them. A task's ready time is the
// latest of its predecessors' ends, which the host does not know either. So it is a moment of its
// own, the latest of others.
#include "linerate/exec/streams/step_recording.hpp"

#include <algorithm>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::exec {

StepRecording::StepRecording(StreamDevice& device, Recorder& recorder,
                             std::shared_ptr<StreamTimes> times,
                             std::shared_ptr<const StreamProgram> program)
    : device_(device), recorder_(recorder), times_(std::move(times)), program_(std::move(program)) {
  for (const doc::TaskGraph& graph : program_->plan->variants)
    names_.emplace_back(*program_->plan, graph, &recorder_);
}

void StepRecording::begin_step(std::int32_t variant) {
  records_ = recorder_.keeps();
  ends_before_ = std::exchange(ends_, {});
  if (!records_) return;
  recorded_as_ = recorder_.step();
  begin_ = times_->begin_step();
  const std::size_t tasks = program_->plan->variants[to_index(variant)].tasks.size();
  ends_ = {variant, std::vector<std::int64_t>(tasks, -1)};
}

void StepRecording::note_end(std::uint32_t task) {
  if (records_) ends_.of_task[task] = times_->set_in(LaneStreams::kComputeStream);
}

void StepRecording::enqueue(StreamId stream, const StreamWork& work) {
  if (!records_) return device_.enqueue(stream, work);
  const std::int64_t start = times_->set_in(stream);
  device_.enqueue(stream, work);
  const std::int64_t end = ends_.of_task[work.id.task] = times_->set_in(stream);
  const VariantNames& names = names_[to_index(ends_.variant)];
  recorder_.add({.kind = work.task.kind,
                 .resource = work.task.resource,
                 .name = names.names[work.id.task],
                 .set = names.sets[work.id.task],
                 .ready_ns = recorder_.time_of(ready(work)),
                 .start_ns = recorder_.time_of(start),
                 .end_ns = recorder_.time_of(end),
                 .bytes = work.task.bytes},
                recorded_as_);
}

/// When a task could have run, as the step machine defines it: when its last predecessor was over
/// and its step had begun. Predecessors in the step before count as well.
std::int64_t StepRecording::ready(const StreamWork& work) {
  std::vector<std::int64_t> ends = {begin_};
  const auto add = [&ends](const Ends& of, std::uint32_t task) {
    if (of.of_task[task] >= 0) ends.push_back(of.of_task[task]);
  };
  for (const std::uint32_t p : work.graph.predecessors(work.id.task)) add(ends_, p);
  for (const EdgeFromBefore& edge : program_->from_before[to_index(ends_.variant)])
    if (edge.to == work.id.task && edge.variant == ends_before_.variant)
      add(ends_before_, edge.from);
  return times_->latest_of(ends);
}

}  // namespace linerate::exec
