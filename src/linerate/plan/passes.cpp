// The kinds of steps of a strategy. Three things change from step to step: the compressor's phase,
// the other collectives that run, and what K-FAC updates. Each combination is a kind. The schedule
// repeats after the least common multiple of their lengths.
#include "linerate/plan/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "linerate/core/error.hpp"

namespace linerate::plan {
namespace {

std::vector<CurvatureUpdate> updates_of(const std::optional<Kfac>& kfac) {
  return kfac ? kfac->updates() : std::vector<CurvatureUpdate>(1);
}

std::string joined(const std::string& phase, std::string_view update) {
  return phase + (phase.empty() || update.empty() ? "" : ".") + std::string(update);
}

/// Which of the other collectives run in a step. Steps are alike if the same collectives run in
/// them.
///
/// An example: one collective runs every 2 steps and one every 3 steps, so 6 steps repeat. Their
/// kinds are "", "every-2", "every-3", "every-2", "" and "every-2-3". Collectives that run in every
/// step make no difference.
class Periods {
 public:
  explicit Periods(const std::vector<int>& every) : every_(every.begin(), every.end()) {
    every_.erase(1);
    for (const int steps : every_) steps_ = std::lcm(steps_, std::int64_t{steps});
    std::map<std::string, std::int32_t> known;
    for (std::int64_t step = 0; step < steps_; ++step) {
      const std::string name = name_of_step(step);
      const auto [at, is_new] = known.try_emplace(name, static_cast<std::int32_t>(kinds_.size()));
      if (is_new) kinds_.emplace_back(step, name);
      of_step_.push_back(at->second);
    }
  }

  std::int64_t steps() const { return steps_; }
  /// A step of each kind, and its name: "every-2-4"; empty: what runs in every step.
  const std::vector<std::pair<std::int64_t, std::string>>& kinds() const { return kinds_; }
  std::int32_t kind_of(std::int64_t step) const { return of_step_[to_index(step % steps_)]; }

 private:
  std::string name_of_step(std::int64_t step) const {
    std::string name;
    for (const int steps : every_)
      if ((step + 1) % steps == 0) name += fmt::format("{}-{}", name.empty() ? "every" : "", steps);
    return name;
  }

  std::set<int> every_;
  std::int64_t steps_ = 1;
  std::vector<std::pair<std::int64_t, std::string>> kinds_;
  std::vector<std::int32_t> of_step_;
};

}  // namespace

// Kinds are numbered by phase, then by period, then by update, so kind_of() needs no search. An
// example with K-FAC's factors every 10 and inverses every 100 steps: the cycle has 100 steps and
// three kinds.
StepKinds step_kinds(const compress::Phases& phases, const std::optional<Kfac>& kfac,
                     const std::vector<int>& every) {
  const std::vector<CurvatureUpdate> updates = updates_of(kfac);
  const Periods periods(every);
  const bool alone = phases.count() == 1;
  StepKinds result;
  for (int phase = 0; phase < phases.count(); ++phase)
    for (const auto& [in_period, name] : periods.kinds())
      for (const CurvatureUpdate& update : updates)
        result.kinds.push_back(
            {joined(joined(alone ? "" : phases.name(phase), name), name_of(update)),
             alone ? -1 : phase, update, in_period});
  const auto kind_of = [&](std::int64_t step) {
    const CurvatureUpdate update = kfac ? kfac->update_of_step(step) : CurvatureUpdate{};
    const auto at = std::find(updates.begin(), updates.end(), update) - updates.begin();
    const auto of_period = periods.kind_of(step);
    const auto each = static_cast<std::int32_t>(updates.size());
    const auto of_periods = static_cast<std::int32_t>(periods.kinds().size());
    return (phases.of_step(step) * of_periods + of_period) * each + static_cast<std::int32_t>(at);
  };
  std::int64_t warm = 0;
  for (const compress::Phase& phase : phases.warm_up) warm += phase.steps;
  constexpr std::int64_t kLongest = 10'000'000;
  const std::int64_t cycle =
      std::lcm(periods.steps(), std::lcm(static_cast<std::int64_t>(phases.cycle.size()),
                                         kfac ? kfac->inverse_interval : std::int64_t{1}));
  if (periods.steps() > 1 && cycle > kLongest)
    throw UsageError(
        fmt::format("the strategy and the Workload's other_collectives repeat together only after "
                    "{} steps, expected at most {}; change every, or the strategy's intervals",
                    cycle, kLongest));
  for (std::int64_t step = 0; step < warm + cycle; ++step)
    (step < warm ? result.warm_up : result.cycle).push_back(kind_of(step));
  return result;
}

// Edges from a step into the next one, for decoupled exchanges. Their all-gathers end under the
// next forward pass, and each update at the head of the next step waits for the gradients that it
// needs. An example: a step sends the buckets {2, 3} and {0, 1}, by tasks 7 and 9. In the next step
// an update of the gradients {1, 2} waits for tasks 7 and 9. If the next step's buckets are others,
// the edges still follow the gradients and not the buckets.

// Notes for each gradient the task that brings it back, and for each update at the head of a step
// the gradients that it needs. Preconditioning of a layer counts as such an update.
void find_border(const doc::Workload& workload, const StepDraft& step, const Curvature* curvature,
                 StepBorder& border) {
  border.needs.clear();
  border.arrival.resize(workload.gradients.size());
  for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
    const std::uint32_t received = step.tasks.position(step.exchanges[b].received);
    for (const std::int32_t p : members_of(*step.graph, step.graph->payloads[b]))
      border.arrival[to_index(p)] = received;
  }
  const auto need = [&](Handle task, std::span<const std::int32_t> gradients) {
    if (task != kNoTask) border.needs.push_back({step.tasks.position(task), gradients});
  };
  for (std::size_t b = 0; b < step.updates.size(); ++b)
    need(step.updates[b], members_of(*step.graph, step.graph->payloads[b]));
  for (std::size_t b = 0; b < step.preconditioned.size(); ++b)
    need(step.preconditioned[b], curvature->blocks[b].gradients);
}

void join_steps(const StepBorder& from, doc::TaskGraph& graph, const StepBorder& to,
                std::int32_t variant) {
  std::vector<std::uint32_t> arrivals;
  for (const auto& [task, gradients] : to.needs) {
    arrivals.clear();
    for (const std::int32_t p : gradients) {
      const std::uint32_t arrival = from.arrival[to_index(p)];
      if (arrivals.empty() || arrivals.back() != arrival) arrivals.push_back(arrival);
    }
    std::sort(arrivals.begin(), arrivals.end());
    arrivals.erase(std::unique(arrivals.begin(), arrivals.end()), arrivals.end());
    for (const std::uint32_t arrival : arrivals)
      graph.next_step.push_back({arrival, task, variant});
  }
}

// The helpers by which passes put their tasks into the places that the schedule wants. A lane runs
// in order, so the place decides what a task waits for besides its edges.

std::vector<std::size_t> bucket_of_gradients(const PassInput& input, const StepDraft& step) {
  std::vector<std::size_t> bucket_of(input.workload.gradients.size());
  for (std::size_t b = 0; b < step.exchanges.size(); ++b)
    for (const std::int32_t p : members_of(*step.graph, step.graph->payloads[b]))
      bucket_of[to_index(p)] = b;
  return bucket_of;
}

Handle StepDraft::append_compute(const doc::Task& task) {
  return tail == kNoTask ? tasks.append(task) : tasks.insert_before(tail, task);
}

Handle StepDraft::append_before_settling(const doc::Task& task) {
  return settling.empty() ? append_compute(task) : tasks.insert_before(settling.front(), task);
}

// Puts a task of the compute lane right after the gradient that completes the bucket. If another
// task was put after that gradient or a later one, it goes after that task. They run in the order
// in which buckets are sent. `backward_end` moves if the task comes last.
Handle StepDraft::put_into_compute(const doc::Task& task, std::size_t bucket) {
  const Handle gradient = exchanges[bucket].ready;
  if (put_last == kNoTask || gradient > put_after) put_last = put_after = gradient;
  const bool is_the_end = put_last == backward_end;
  put_last = tasks.insert_after(put_last, task);
  if (is_the_end) backward_end = put_last;
  return put_last;
}

// A step may end before the second halves of decoupled exchanges. So the collectives of its end
// come before all of them in the network's lane.
Handle StepDraft::append_collective(const doc::Task& task) {
  const bool decoupled = !exchanges.empty() && exchanges.back().receive != exchanges.back().send;
  return decoupled ? tasks.insert_before(exchanges.back().receive, task) : tasks.append(task);
}

std::int16_t StepDraft::operation(std::string_view name) {
  const auto at =
      std::find_if(plan->operations.begin(), plan->operations.end(),
                   [name](const doc::Component& o) { return o.options.empty() && o.name == name; });
  return at == plan->operations.end() ? plan->operation({std::string(name), {}})
                                      : static_cast<std::int16_t>(at - plan->operations.begin());
}

std::int32_t StepDraft::add_payload(const doc::Payload& payload) {
  graph->payloads.push_back(payload);
  return static_cast<std::int32_t>(graph->payloads.size() - 1);
}

std::int32_t StepDraft::add_payload(doc::Payload payload, std::span<const std::int32_t> members) {
  payload.begin = static_cast<std::int32_t>(graph->members.size());
  graph->members.insert(graph->members.end(), members.begin(), members.end());
  payload.end = static_cast<std::int32_t>(graph->members.size());
  payload.padded = payload.elements;
  return add_payload(payload);
}

doc::Task StepDraft::task_on(std::int32_t payload, doc::TaskKind kind, doc::Resource resource,
                             std::string_view name) {
  const doc::Payload& p = graph->payloads[to_index(payload)];
  doc::Task task;
  task.kind = kind;
  task.resource = resource;
  task.subject = doc::Subject::payloads;
  task.wire = p.dtype;
  task.operation = operation(name);
  task.first = task.last = payload;
  task.bytes = p.flags > 0 ? p.flags * size_of(p.dtype) : p.bytes();
  return task;
}

doc::Task StepDraft::broadcast_of(const doc::Payload& payload,
                                  std::span<const std::int32_t> members, std::int32_t group,
                                  std::int32_t root) {
  doc::Task task = task_on(add_payload(payload, members), doc::TaskKind::broadcast,
                           doc::Resource::network, "move");
  task.group = group;
  task.root = root;
  return task;
}

}  // namespace linerate::plan
