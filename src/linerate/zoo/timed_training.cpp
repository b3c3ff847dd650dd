// Several trainings take turns on one communicator, a round of steps each. Every round starts from
// rest: one step that is not counted, then a barrier, so that nothing of another training is still
// under way. Bytes are counted over the round's steps alone.
#include "linerate/zoo/timed_training.hpp"

#include <algorithm>

#include "linerate/core/intervals.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/zoo/trainer.hpp"

namespace linerate::zoo {
namespace {

// The options without what writes files or changes the communicator that others use meanwhile.
TrainOptions plain(TrainOptions options) {
  options.checked_steps = 0;  // a mode of the communicator, which others use meanwhile
  options.checkpoint.clear();
  options.record.clear();
  options.losses.clear();
  options.resume = false;
  return options;
}

// A pass may lie in several spans, because waits in it are cut out.
void add_computation(exec::Recorder& recorder, doc::TaskKind kind, const SpanSet& spans) {
  for (const Span& span : spans) {
    doc::Event event;
    event.kind = kind;
    event.resource = doc::Resource::compute;
    event.start_ns = span.start_ns;
    event.end_ns = span.end_ns;
    recorder.add(event);
  }
}

/// The pass between these moments, in ns. Stretches in which an operator waited for its weight, or
/// a hook computed a factor, are cut out.
SpanSet pass_of(const StepProbe& probe, std::int64_t from_ns, std::int64_t to_ns) {
  std::vector<Span> others;
  for (const auto& s : probe.report.held) others.push_back({s.start_ns, s.end_ns});
  for (const auto& s : probe.report.factors) others.push_back({s.start_ns, s.end_ns});
  return difference_of({{from_ns, to_ns}}, union_of(std::move(others)));
}

}  // namespace

struct TimedTraining::Impl {
  Impl(const TrainOptions& options, comm::Communicator& c, std::string name)
      : communicator(c),
        recorder(c, exec::agree_origin(c), "trained"),
        trainer(plain(options), c, observer, {&recorder, std::move(name)}) {}

  // They are recorded, as the recorder counts steps, and left out afterwards.
  void take_uncounted(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) {
      recorder.begin_step(next++);
      trainer.take_step();
    }
    trainer.settle();
  }

  // The recorder sees the exchange by itself. Forward and backward are LibTorch's, so their spans
  // are added here.
  void take_recorded_step() {
    recorder.begin_step(next);
    const StepProbe probe = trainer.take_step();
    recorder.add_step(next, probe.start_ns, probe.end_ns, probe.report.variant);
    add_computation(recorder, doc::TaskKind::forward,
                    pass_of(probe, probe.forward_ns, probe.backward_ns));
    add_computation(recorder, doc::TaskKind::backward,
                    pass_of(probe, probe.backward_ns, probe.exchange_ns));
    ++next;
  }

  /// Steps from `first` on, of this rank.
  doc::Timeline recorded(std::int32_t first) const {
    doc::Timeline timeline = recorder.timeline();
    std::erase_if(timeline.events, [=](const doc::Event& e) { return e.step < first; });
    std::erase_if(timeline.steps, [=](const doc::Step& s) { return s.index < first; });
    return timeline;
  }

  double mean_over_ranks(double value) {
    communicator.all_reduce(comm::buffer(value), comm::Reduce::sum, "bytes sent")->wait();
    return value / communicator.size();
  }

  comm::Communicator& communicator;
  TrainObserver observer;
  exec::Recorder recorder;
  Trainer trainer;
  std::int32_t next = 0;  // index of the next step
};

TimedTraining::TimedTraining(const TrainOptions& options, comm::Communicator& communicator,
                             std::string name)
    : impl_(std::make_unique<Impl>(options, communicator, std::move(name))) {}

TimedTraining::~TimedTraining() = default;

void TimedTraining::warm_up(std::int64_t steps) {
  impl_->take_uncounted(steps);
  impl_->trainer.pass_over_warm_up(impl_->next);
}

evaluate::Round TimedTraining::run(std::int64_t steps) {
  impl_->take_uncounted(1);
  // Ranks start together, and nothing of others is under way.
  impl_->communicator.barrier("before a timed round")->wait();
  const std::int32_t first = impl_->next;
  const Bytes before = impl_->communicator.traffic().sent;
  for (std::int64_t i = 0; i < steps; ++i) impl_->take_recorded_step();
  impl_->trainer.settle();
  const Bytes after = impl_->communicator.traffic().sent;
  ++impl_->next;  // the next round's first step does not directly follow this round's last
  evaluate::Round round;
  round.sent_bytes = impl_->mean_over_ranks(static_cast<double>(after.value - before.value) /
                                            static_cast<double>(steps));
  round.timeline = exec::gather_timeline(impl_->communicator, impl_->recorded(first));
  return round;
}

std::int64_t TimedTraining::parameters() const { return impl_->trainer.parameters(); }

}  // namespace linerate::zoo
