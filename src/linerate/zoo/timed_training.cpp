// Several trainings take turns on one communicator, a round of steps each. Every round starts from
// rest: one step that is not counted, then a barrier, so that nothing of another training is still
// under way. Bytes are counted over the round's steps alone.
#include "linerate/zoo/timed_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/compare/accuracy.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/models/description.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/zoo/trainer.hpp"

namespace linerate::zoo {
namespace {

// The options without what writes files or changes the communicator that others use meanwhile.
TrainOptions plain(TrainOptions options) {
  options.checked_steps = 0;
  options.checkpoint.clear();
  options.record.clear();
  options.losses.clear();
  options.resume = false;
  return options;
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
    // A pass may lie in several spans, because stretches are cut out of it.
    const auto add_pass = [&](doc::TaskKind kind, const Span& pass) {
      for (const Span& span : difference_of({pass}, without_layers(probe.report)))
        recorder.add({.kind = kind,
                      .resource = doc::Resource::compute,
                      .start_ns = span.start_ns,
                      .end_ns = span.end_ns});
    };
    add_pass(doc::TaskKind::forward, {probe.forward_ns, probe.backward_ns});
    add_pass(doc::TaskKind::backward, {probe.backward_ns, probe.exchange_ns});
    ++next;
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

verbs::Round TimedTraining::run(std::int64_t steps) {
  impl_->take_uncounted(1);
  // Ranks start together, and nothing of others is under way.
  impl_->communicator.barrier("before a timed round")->wait();
  const std::int32_t first = impl_->next;
  const Bytes before = impl_->communicator.traffic().sent;
  for (std::int64_t i = 0; i < steps; ++i) impl_->take_recorded_step();
  impl_->trainer.settle();
  const Bytes after = impl_->communicator.traffic().sent;
  ++impl_->next;  // the next round's first step does not directly follow this round's last
  verbs::Round round;
  round.sent_bytes = static_cast<double>(after.value - before.value) / static_cast<double>(steps);
  comm::Communicator& all = impl_->communicator;
  all.all_reduce(comm::buffer(round.sent_bytes), comm::Reduce::sum, "bytes sent")->wait();
  round.sent_bytes /= all.size();
  doc::Timeline recorded = impl_->recorder.timeline();  // of this rank
  std::erase_if(recorded.events, [=](const doc::Event& e) { return e.step < first; });
  std::erase_if(recorded.steps, [=](const doc::Step& s) { return s.index < first; });
  round.timeline = exec::gather_timeline(all, recorded);
  return round;
}

std::int64_t TimedTraining::parameters() const { return impl_->trainer.parameters(); }

// A setup of `linerate evaluate` that trains. Step times come first, by a contest of trainings that
// take turns. Their learning rate is so small that gradients stay those of the first weights, and
// no compressor diverges. Accuracy comes from whole trainings afterwards, one by one. Each strategy
// trains over some seeds, for as many steps as fp32, and again for as long as fp32 takes.

namespace {

constexpr double kTimingRate = 1e-6;      // gradients stay those of the first weights
constexpr std::int64_t kWarmUp = 8;       // strategies plan again in their first steps
constexpr std::int64_t kTestPoints = 20;  // of a training, if nothing else is asked for

// The base options with this strategy.
TrainOptions options_for(const std::string& strategy, const TrainOptions& base) {
  TrainOptions options = base;
  options.strategy = strategy;
  // dgc accumulates with a momentum of its own in place of the optimizer's.
  if (plan::asked_of_optimizer(doc::parse_strategy(strategy)).momentum == compress::Momentum::own)
    options.momentum = 0;
  return options;
}

void time_steps(doc::Setup& setup, comm::Communicator& communicator, const TrainedSetupOptions& o,
                const verbs::Progress& progress) {
  TrainOptions timing = o.train;
  timing.rate = kTimingRate;
  timing.schedule = "constant";
  timing.test_samples = 1;
  timing.test_every.reset();
  int made = 0;
  const auto prepare = [&](const std::string& strategy) -> verbs::RunRound {
    const auto training = std::make_shared<TimedTraining>(
        options_for(strategy, timing), communicator, fmt::format("timed {}", made++));
    training->warm_up(kWarmUp);
    return [training](std::int64_t steps) { return training->run(steps); };
  };
  setup.timed = verbs::contest(communicator, o.contest, 4 * describe(timing).parameter_elements(),
                               prepare, progress);
}

// One training to its end. A loss that is no number ends it without an error; its tests so far are
// kept.
doc::TrainedRun trained(comm::Communicator& communicator, const TrainOptions& options,
                        doc::Role role, doc::Budget budget) {
  const TrainReport report = train(options, communicator);
  doc::TrainedRun run;
  run.strategy = options.strategy;
  run.role = role;
  run.budget = budget;
  run.seed = options.seed;
  run.learning_rate = *options.rate;
  run.steps = *options.steps;
  run.diverged = report.diverged;
  for (const TestReport& t : report.tests)
    run.points.push_back({t.step, t.train_s, std::isfinite(t.loss) ? t.loss : 0, t.accuracy});
  return run;
}

/// The trainings of one setup, one after the other. Candidates stand in the order of
/// contest.candidates, after the baselines, and may have learning rates of their own. Each setup
/// trains for equal steps, and for equal time unless that is as many steps.
void train_all(doc::Setup& setup, comm::Communicator& communicator, const TrainedSetupOptions& o,
               const verbs::Progress& progress) {
  const std::vector<doc::TimedRun> timed = setup.timed;
  const std::size_t baselines = timed.size() - o.contest.candidates.size();
  for (std::size_t i = 0; i < timed.size(); ++i) {
    if (timed[i].role == doc::Role::repeat) continue;
    TrainOptions options = options_for(timed[i].strategy, o.train);
    options.rate = learning_rate(o.train);
    if (timed[i].role == doc::Role::candidate)
      if (const auto own = o.rates.find(o.contest.candidates[i - baselines]); own != o.rates.end())
        options.rate = own->second;
    options.epochs.reset();
    options.ends_when_diverged = true;
    const auto add = [&](std::int64_t steps, doc::Budget budget) {
      options.steps = steps;
      options.test_every =
          o.train.test_every.value_or(std::max<std::int64_t>(1, steps / kTestPoints));
      for (int s = 0; s < o.seeds; ++s) {
        options.seed = o.train.seed + static_cast<std::uint64_t>(s);
        if (progress)
          progress(fmt::format("training {}, equal {}, seed {}", timed[i].strategy, name_of(budget),
                               options.seed));
        setup.trained.push_back(trained(communicator, options, timed[i].role, budget));
      }
    };
    const std::int64_t steps = o.train.steps.value_or(300);
    add(steps, doc::Budget::steps);
    const auto in_time = compare::steps_in_equal_time(setup, timed[i].strategy, steps);
    if (o.equal_time && in_time && *in_time != steps) add(*in_time, doc::Budget::time);
  }
}

}  // namespace

verbs::NewSetup trained_setup(comm::Communicator& communicator, TrainedSetupOptions o,
                              doc::Setup place, const verbs::Progress& progress) {
  verbs::check(o.contest);
  for (const auto& [candidate, rate] : o.rates)
    if (std::ranges::find(o.contest.candidates, candidate) == o.contest.candidates.end())
      throw UsageError(fmt::format(
          "--lr-of: expected one of --compressors as it stands there, found {}", candidate));
  place.model = o.train.model;
  place.input = models::to_text(describe(o.train).input);
  place.data = o.train.data;
  place.batch = o.train.batch;
  const auto run = [=, &communicator, o = std::move(o)](doc::Setup& setup) {
    time_steps(setup, communicator, o, progress);
    if (o.seeds > 0) train_all(setup, communicator, o, progress);
  };
  return {std::move(place), run};
}

}  // namespace linerate::zoo
