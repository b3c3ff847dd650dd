// A rehearsal is a Runner over real collectives whose computation is replaced by waiting. This
// thread drives the compute lane. For each observed task it asks the runner when the task could
// start (gate), sleeps for the task's seconds, and reports the end. All ends follow from planned
// times and never from when a thread woke up, so the sleeps' errors do not add up over a step.
//
// An example with two backward tasks of 3 ms and a bucket after each. The first may start at 0 and
// ends at 3 ms; the thread wakes at 3.1 ms and reports 3 ms. The bucket's all-reduce starts when
// the report arrives, at 3.1 ms, because it is real. The second backward task runs from 3 to 6 ms,
// whatever the all-reduce takes.
#include "linerate/exec/rehearse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "linerate/compress/cast.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/coded_bucket.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/exec/runner.hpp"

namespace linerate::exec {
namespace {

using doc::Origin;
using doc::Resource;
using doc::Task;
using doc::TaskGraph;

/// Throws UsageError for a plan with computation outside the compute lane, which a rehearsal cannot
/// drive.
void check(const doc::Plan& plan) {
  for (const TaskGraph& graph : plan.variants)
    for (const Task& task : graph.tasks)
      if (task.origin == Origin::observed && task.resource != Resource::compute)
        throw on_every_rank(UsageError(fmt::format(
            "plan \"{}\", variant \"{}\": \"{}\" is observed in the {} lane, but rehearsal drives "
            "only the compute lane",
            plan.strategy, graph.name, title_of(plan, graph, task), name_of(task.resource))));
}

/// Writes down the observed tasks of a variant as a predicted Timeline has them. Backward tasks of
/// one layer that follow each other make one event. So a layer's weight and bias, which are two
/// tasks of the Plan, are one event in the Timeline. Tasks that take no time make no event.
class ObservedEvents {
 public:
  ObservedEvents(const doc::Plan& plan, const TaskGraph& graph, Recorder& recorder)
      : recorder_(recorder), ended_by_(graph.tasks.size()) {
    std::vector<std::vector<std::uint32_t>> events;  // the tasks of each
    const Task* before = nullptr;                    // in the lane
    for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
      const Task& task = graph.tasks[i];
      if (task.resource != Resource::compute || doc::nanoseconds(task.seconds) <= 0) continue;
      if (task.origin == Origin::observed) {
        if (before == nullptr || !joins(plan, *before, task)) events.emplace_back();
        events.back().push_back(i);
      }
      before = &task;
    }
    for (const auto& tasks : events) show(plan, graph, tasks);
  }

  void done(std::uint32_t task, std::int64_t start_ns, std::int64_t end_ns) {
    if (start_ns_ < 0) start_ns_ = start_ns;
    if (!ended_by_[task]) return;
    doc::Event event = *ended_by_[task];
    event.start_ns = std::exchange(start_ns_, -1);
    event.end_ns = end_ns;
    recorder_.add(event);
  }

 private:
  static bool joins(const doc::Plan& plan, const Task& before, const Task& task) {
    return before.kind == doc::TaskKind::backward && task.kind == doc::TaskKind::backward &&
           layer_of(plan, task) >= 0 && layer_of(plan, before) == layer_of(plan, task);
  }

  void show(const doc::Plan& plan, const TaskGraph& graph,
            const std::vector<std::uint32_t>& tasks) {
    const Task& first = graph.tasks[tasks.front()];
    std::vector<std::string> parameters;
    for (const std::uint32_t i : tasks) add_parameters(parameters, plan, graph, graph.tasks[i]);
    doc::Event& event = ended_by_[tasks.back()].emplace();
    event.kind = first.kind, event.resource = Resource::compute;
    if (first.bytes > 0) event.bytes = first.bytes;
    if (const std::string name = event_name_of(plan, graph, first); !name.empty())
      event.name = recorder_.name_id(name);
    if (!parameters.empty()) event.set = recorder_.set_id(parameters);
  }

  Recorder& recorder_;
  std::vector<std::optional<doc::Event>> ended_by_;  // [tasks] the event whose last task it is
  std::int64_t start_ns_ = -1;
};

/// Drives the compute lane of one rank, step by step. The last step's computation may end while its
/// collectives run on; run() waits for those, too, and only then takes the Timeline.
class Rehearsal {
 public:
  Rehearsal(comm::Communicator& communicator, std::shared_ptr<const doc::Plan> plan,
            const RehearsalOptions& options)
      : communicator_(communicator),
        plan_(std::move(plan)),
        options_(options),
        recorder_(communicator, agree_origin(communicator), "rehearsed"),
        payloads_(plan_),
        runner_(communicator, payloads_, &recorder_) {
    if (options.real_codecs) run_codecs();
    runner_.let_other_operations_wait();
    runner_.set_plan(plan_);
    check(*plan_);
    for (const TaskGraph& graph : plan_->variants) {
      lanes_.push_back(
          doc::VariantIndex(*plan_, graph, communicator.rank()).lanes[to_index(Resource::compute)]);
      events_.emplace_back(*plan_, graph, recorder_);
    }
  }

  /// Sets up the operations that encode and decode: compressors, or else casts. CastOperation
  /// refuses a plan that has neither.
  void run_codecs() {
    const std::set<std::string> coded = Compression::operations_of(*plan_);
    const std::vector<std::string> known = compress::compressors().names();
    const bool compresses = std::any_of(coded.begin(), coded.end(), [&](const std::string& name) {
      return std::find(known.begin(), known.end(), name) != known.end();
    });
    if (!compresses) return runner_.set_operation(std::string(doc::kCast), cast_.emplace(*plan_));
    compression_.emplace(plan_, communicator_.rank(), communicator_.size());
    for (const std::string& name : coded) runner_.set_operation(name, *compression_);
  }

  doc::Timeline run() {
    const auto before = static_cast<std::int32_t>(plan_->warm_up.size()) + options_.warm_up;
    communicator_.barrier("rehearsal")->wait();
    const Bytes sent = communicator_.traffic().sent;
    std::int64_t start_ns = steady_ns();
    for (std::int32_t step = 0; step < before + options_.steps; ++step) {
      recorder_.begin_step(step - before);
      const std::int64_t end_ns = run_step();
      if (step >= before) recorder_.add_step(step - before, start_ns, end_ns, runner_.graph().name);
      start_ns = end_ns;
      if (options_.progress)
        options_.progress(static_cast<double>(step + 1) / (before + options_.steps));
    }
    runner_.drain();
    if (options_.sent_bytes)
      *options_.sent_bytes = static_cast<double>(communicator_.traffic().sent.value - sent.value) /
                             (before + options_.steps);
    return recorded();
  }

 private:
  /// Returns the time at which its computation ended.
  std::int64_t run_step() {
    runner_.begin_step();
    const TaskGraph& graph = runner_.graph();
    const auto variant = to_index(&graph - plan_->variants.data());
    for (const std::uint32_t i : lanes_[variant]) {
      if (graph.tasks[i].origin == Origin::executed) {
        runner_.wait_for(runner_.current(i));
        continue;
      }
      const std::int64_t start_ns = runner_.gate(i);
      const std::int64_t end_ns = start_ns + doc::nanoseconds(graph.tasks[i].seconds);
      sleep_until_ns(end_ns);
      runner_.report(i, end_ns);
      if (end_ns > start_ns) events_[variant].done(i, start_ns, end_ns);
    }
    return runner_.end_step();
  }

  doc::Timeline recorded() const {
    doc::Timeline timeline = recorder_.timeline();
    // Keeps of earlier steps only what went on during the first recorded one.
    const std::int64_t begin_ns = timeline.steps.front().start_ns;
    std::erase_if(timeline.events,
                  [=](const doc::Event& e) { return e.step < 0 && e.end_ns <= begin_ns; });
    for (doc::Event& e : timeline.events) e.step = std::max(e.step, doc::kEarlierStep);
    timeline.source = "rehearsal";
    timeline.workload = plan_->workload;
    timeline.strategy = plan_->strategy;
    timeline.one_rank_step_s = computation_s(*plan_);
    timeline.computation_slowed = false;
    return timeline;
  }

  comm::Communicator& communicator_;
  std::shared_ptr<const doc::Plan> plan_;
  RehearsalOptions options_;
  Recorder recorder_;
  PayloadArena payloads_;
  std::optional<CastOperation> cast_;
  std::optional<CompressionLoad> compression_;
  Runner runner_;
  std::vector<std::vector<std::uint32_t>> lanes_;  // [variants] tasks of the compute lane
  std::vector<ObservedEvents> events_;             // [variants]
};

}  // namespace

double computation_s(const doc::Plan& plan) {
  double sum = 0;
  for (const std::int32_t v : plan.cycle)
    for (const Task& task : plan.variants[to_index(v)].tasks)
      if (task.origin == Origin::observed) sum += task.seconds;
  return sum / static_cast<double>(plan.cycle.size());
}

doc::Timeline rehearse(comm::Communicator& communicator, std::shared_ptr<const doc::Plan> plan,
                       const RehearsalOptions& options) {
  return gather_timeline(communicator, Rehearsal(communicator, std::move(plan), options).run());
}

// `rehearse --real codec` over a Plan that casts. Every cast reads and writes the same two arrays,
// so that it costs what the training job's cast costs. The collectives have other memory
// (PayloadArena), so no value matters here.

namespace {

bool codes(const Task& task) {
  return task.kind == doc::TaskKind::encode || task.kind == doc::TaskKind::decode;
}

DType wire_of(const doc::Plan& plan, const Task& task) {
  const std::string* to = plan.operations[to_index(task.operation)].find("to");
  LINERATE_CHECK(to != nullptr, "a cast without a type");
  return parse_dtype(*to);
}

/// The dense side: the bucket that the task encodes or decodes.
const doc::Payload& bucket_of(const doc::TaskGraph& graph, const Task& task) {
  return graph.payloads[to_index(task.first)];
}

}  // namespace

CastOperation::CastOperation(const doc::Plan& plan) : plan_(plan) {
  std::int64_t dense = 0, encoded = 0;
  for (const doc::TaskGraph& graph : plan.variants)
    for (const Task& task : graph.tasks) {
      if (!codes(task)) continue;
      if (plan.operation_name(task) != doc::kCast)
        throw on_every_rank(UsageError(
            fmt::format("plan \"{}\": the operation \"{}\" is given only by its numbers, so there "
                        "is nothing to run; leave out --real codec, or use wire=fp16 or wire=bf16",
                        plan.strategy, plan.operation_name(task))));
      const doc::Payload& bucket = bucket_of(graph, task);
      const DType wire = wire_of(plan, task);
      if (!compress::can_cast(bucket.dtype, wire))
        throw on_every_rank(UsageError(fmt::format(
            "plan \"{}\": a cast of {} to {} cannot run here (f32 to f16 and bf16 can); leave out "
            "--real codec",
            plan.strategy, name_of(bucket.dtype), name_of(wire))));
      dense = std::max(dense, bucket.bytes());
      encoded = std::max(encoded, bucket.padded * size_of(wire));
    }
  dense_ = zeros(dense);
  encoded_ = zeros(encoded);
}

void CastOperation::run(const doc::TaskGraph& graph, const Task& task) {
  const doc::Payload& bucket = bucket_of(graph, task);
  const DType wire = wire_of(plan_, task);
  const auto elements = to_index(bucket.elements);
  if (task.kind == doc::TaskKind::encode)
    compress::cast(dense_.get(), bucket.dtype, encoded_.get(), wire, elements);
  else
    compress::cast(encoded_.get(), wire, dense_.get(), bucket.dtype, elements);
}

}  // namespace linerate::exec
