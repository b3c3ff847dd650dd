// Exposed communication is the time in which a rank communicates and does not compute. Both are
// unions of spans, and their difference is clipped to the steps of the cycle. Messages of a step
// before may reach into the cycle, so the events of all steps are gathered. An example: computation
// from 0 to 10 ms, an all-reduce from 8 to 13 ms and one from 13 to 15 ms. The spans of
// communication join into 8 to 15 ms, and 5 ms of them are exposed.
#include "linerate/sim/step_exposure.hpp"

#include "linerate/core/index.hpp"
#include "linerate/doc/exposed_communication.hpp"
#include "linerate/sim/steady_cycle.hpp"

namespace linerate::sim {
namespace {

// Collects the spans of one kind in the order of the tasks. Tasks that follow one another without a
// gap join at once, as most computations do, so that a few spans are sorted instead of hundreds.
// Times are rounded to the nanosecond only after joining; otherwise rounding would open gaps.
class Spans {
 public:
  explicit Spans(const SteadyCycle& cycle) : cycle_(cycle) {}

  void add(double start_s, double end_s) {
    if (end_s <= start_s) return;
    if (start_s != end_s_) {
      close();
      start_s_ = start_s;
    }
    end_s_ = end_s;
  }
  SpanSet set() && {
    close();
    return union_of(std::move(spans_));
  }

 private:
  void close() {
    if (end_s_ > start_s_)
      spans_.push_back({cycle_.since_origin_ns(start_s_), cycle_.since_origin_ns(end_s_)});
  }

  const SteadyCycle& cycle_;
  std::vector<Span> spans_;
  double start_s_ = 0, end_s_ = 0;  // what is joined now
};

// Exposed communication of one rank of a class over the cycle, in seconds. Tasks that ended before
// the cycle begins count nowhere.
double of_class(const SteadyCycle& cycle, std::int32_t rank_class) {
  Spans communication(cycle), computation(cycle);
  const double begin_s = cycle.begin_s(rank_class);
  const Unrolled& steps = cycle.unrolled;
  for (std::size_t s = 0; s < steps.begins.size(); ++s) {
    std::uint32_t i = steps.begins[s];
    for (const doc::Task& task : steps.variant(s).tasks) {
      const std::uint32_t slot = cycle.times.slot(i++, rank_class);
      if (slot == kNoSlot || cycle.times.end[slot] <= begin_s) continue;
      const bool sends = doc::is_communication(task.kind);
      if (!sends && !doc::is_computation(task.kind)) continue;
      (sends ? communication : computation).add(cycle.times.start[slot], cycle.times.end[slot]);
    }
  }
  const SpanSet exposed =
      doc::exposed_communication(std::move(communication).set(), std::move(computation).set());
  double sum = 0;
  for (std::size_t s = 0; s < cycle.steps(); ++s)
    sum += seconds_of(clipped(exposed, cycle.step(s, rank_class)));
  return sum;
}

}  // namespace

double exposed_communication_s(const doc::Plan& plan, const cost::CostModel& model) {
  return exposed_communication_s(plan, steady_cycle(plan, model));
}

double exposed_communication_s(const doc::Plan& plan, const SteadyCycle& cycle) {
  std::vector<double> of_classes;
  for (std::int32_t c = 0; c < cycle.classes.count(); ++c) of_classes.push_back(of_class(cycle, c));
  double sum = 0;
  const std::vector<std::int32_t> ranks = shown_ranks(plan, cycle.classes);
  for (const std::int32_t rank : ranks) sum += of_classes[to_index(cycle.classes.of_rank(rank))];
  return sum / static_cast<double>(ranks.size() * cycle.steps());
}

}  // namespace linerate::sim
