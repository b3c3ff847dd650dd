#include "linerate/sim/fluid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/sim/fluid_state.hpp"
#include "linerate/sim/slot_graph.hpp"
#include "linerate/sim/sweep.hpp"

namespace linerate::sim {
namespace {

using doc::Resource;
using doc::Task;

// `times` has its slots.
class Fluid {
 public:
  Fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
        std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
        TaskTimes& times)
      : graph_(graph),
        prices_(prices),
        classes_(classes),
        contention_(contention),
        times_(times),
        slots_(graph, times),
        ready_(slots_.waits.size(), 0.0),
        states_(classes.classes.size()),
        next_end_(states_.size(), kNever) {
    fill_lanes(step_begins);
    count_missing();
    for (std::size_t c = 0; c < states_.size(); ++c) touch(c);
  }

  double run() {
    start_all();
    for (double end = next_end(); end < kNever; end = next_end()) {
      now_ = end;
      finish_due();
      start_all();
    }
    LINERATE_CHECK(
        finished_ == slots_.waits.size(),
        fmt::format("{}: {} of {} tasks ran", graph_.name, finished_, slots_.waits.size()));
    return last_;
  }

 private:
  void fill_lanes(std::span<const std::uint32_t> step_begins) {
    std::size_t step = 0;
    for (std::uint32_t i = 0; i < graph_.tasks.size(); ++i) {
      for (; step < step_begins.size() && step_begins[step] == i; ++step) add_delays();
      const Task& task = graph_.tasks[i];
      std::uint32_t slot = times_.first[i];
      for (const std::int32_t c : classes_.members.classes_in(task.group))
        states_[to_index(c)].lane(task.resource).entries.push_back({i, slot++});
    }
  }

  void add_delays() {
    for (std::size_t c = 0; c < states_.size(); ++c)
      if (classes_.classes[c].delay_s > 0)
        states_[c].lane(Resource::compute).entries.push_back({0, kDelay});
  }

  // Counts the classes that have not come to each part of each collective.
  void count_missing() {
    missing_begin_.reserve(graph_.tasks.size());
    for (const Task& task : graph_.tasks) {
      missing_begin_.push_back(static_cast<std::uint32_t>(missing_.size()));
      if (!doc::is_communication(task.kind)) continue;
      for (const Membership::Part& part : classes_.members.parts_of(task.group))
        missing_.push_back(part.end - part.begin);
    }
    flight_of_.assign(missing_.size(), kNoTransfer);
  }

  double network_rate(bool computing) const {
    return computing ? 1 / contention_.communication_slowdown : 1;
  }
  double compute_rate(bool communicating) const {
    return communicating ? 1 / contention_.compute_slowdown : 1;
  }

  double coding_slowdown(const ClassState& state) const {
    return state.computes_beside_coding() ? contention_.coding_slowdown : 1;
  }

  // Marks a class whose startable tasks and rates must be looked at again.
  void touch(std::size_t c) {
    if (states_[c].touched) return;
    states_[c].touched = true;
    touched_.push_back(c);
  }

  void start_all() {
    do {
      // A transfer that begins touches further classes: the list grows meanwhile.
      for (std::size_t k = 0; k < touched_.size(); ++k) start_class(touched_[k]);
      // Tasks without duration end at once and may free others at this very moment.
    } while (finish_due());
    set_rates();
  }

  void start_class(std::size_t c) {
    for (Lane& lane : states_[c].lanes) {
      if (!lane.idle()) continue;
      const Entry entry = lane.entries[lane.head];
      if (entry.slot == kDelay) {
        run(lane, c, classes_.classes[c].delay_s);
        continue;
      }
      if (slots_.waits[entry.slot] > 0 || starts_later(lane, c, entry)) continue;
      times_.start[entry.slot] = now_;
      const Task& task = graph_.tasks[entry.task];
      if (task.kind == doc::TaskKind::broadcast)
        come_to_broadcast(lane, c, entry);
      else if (doc::is_communication(task.kind))
        arrive(lane, entry);
      else
        run(lane, c, task.seconds * slowness(task, classes_.classes[c]));
    }
  }

  // A collective starts the Cluster's delay after its class was ready for it.
  bool starts_later(Lane& lane, std::size_t c, Entry entry) {
    const Task& task = graph_.tasks[entry.task];
    if (!(prices_.start_delay_s(task) > 0)) return false;
    const int ranks = classes_.members.parts_of(task.group)[part_of(entry)].ranks;
    const double due = ready_[entry.slot] + prices_.start_delay_s(task, ranks);
    lane.due = due > now_ ? due : kNever;
    next_end_[c] = std::min(next_end_[c], lane.due);
    return due > now_;
  }

  void run(Lane& lane, std::size_t c, double work) {
    lane.running = {work, 1, now_, true};
    next_end_[c] = std::min(next_end_[c], lane.running.end());
  }

  // The part of a collective, as an index into its group's.
  std::size_t part_of(Entry entry) const {
    const auto parts = classes_.members.parts_of(graph_.tasks[entry.task].group);
    const std::uint32_t position = entry.slot - times_.first[entry.task];
    const auto part =
        std::upper_bound(parts.begin(), parts.end(), position,
                         [](std::uint32_t at, const Membership::Part& p) { return at < p.end; });
    return to_index(part - parts.begin());
  }

  void arrive(Lane& lane, Entry entry) {
    lane.at_collective = true;
    const std::size_t part = part_of(entry);
    if (--missing_[missing_begin_[entry.task] + part] == 0)
      begin_transfer(entry.task, classes_.members.parts_of(graph_.tasks[entry.task].group)[part]);
  }

  // ---- broadcasts ----

  void come_to_broadcast(Lane& lane, std::size_t c, Entry entry) {
    lane.at_collective = true;
    const std::size_t part = part_of(entry);
    std::int32_t& flight = flight_of_[missing_begin_[entry.task] + part];
    const Rooted& rooted = classes_.seen_by(graph_.tasks[entry.task]);
    if (rooted.root[part] != entry.slot - times_.first[entry.task]) {
      if (flight != kNoTransfer) board(flight, c, lane);
      return;
    }
    flight = take_off(entry.task, part, rooted);
    for_part(flights_[to_index(flight)], [&](std::size_t other, Lane& its, std::uint32_t) {
      if (its.at_collective && its.entries[its.head].task == entry.task) board(flight, other, its);
    });
  }

  std::int32_t take_off(std::uint32_t task, std::size_t part, const Rooted& rooted) {
    Flight flight;
    flight.task = task;
    flight.part = &classes_.members.parts_of(graph_.tasks[task].group)[part];
    flight.time = prices_.broadcast_of_part(graph_.tasks[task], flight.part->ranks);
    for (std::uint32_t k = flight.part->begin; k < flight.part->end; ++k)
      flight.landings.push_back({flight.time.reaches_s(rooted.share[k]), k});
    std::stable_sort(flight.landings.begin(), flight.landings.end(),
                     [](const auto& a, const auto& b) { return a.after_s < b.after_s; });
    flight.progress = {flight.landings.back().after_s, 1, now_, true};
    flights_.push_back(std::move(flight));
    under_way_.push_back(flights_.size() - 1);
    return static_cast<std::int32_t>(flights_.size() - 1);
  }

  // The class takes its part in carrying it.
  void board(std::int32_t f, std::size_t c, Lane& lane) {
    Flight& flight = flights_[to_index(f)];
    lane.flight = f;
    states_[c].owed_s += contention_.message_s;
    flight.computing += static_cast<int>(states_[c].was_computing);
    run(lane, c, flight.time.own_s);
    touch(c);
  }

  bool has_landed(const Flight& flight, std::uint32_t position) const {
    const auto landed = flight.landings.begin() + static_cast<std::ptrdiff_t>(flight.landed);
    return std::any_of(flight.landings.begin(), landed,
                       [position](const auto& l) { return l.position == position; });
  }

  // Once the class has done its part and the message is there.
  void leave_flight(std::size_t c, Lane& lane) {
    Flight& flight = flights_[to_index(lane.flight)];
    const std::uint32_t slot = lane.entries[lane.head].slot;
    if (lane.running.active || !has_landed(flight, slot - times_.first[flight.task])) return;
    flight.computing -= static_cast<int>(states_[c].was_computing);
    complete(slot);
    lane.advance();
    touch(c);
  }

  bool land_due() {
    bool any = false;
    for (const std::size_t f : under_way_) {
      for (Flight* flight = &flights_[f]; flight->end() <= now_; any = true) {
        const std::uint32_t position = flight->landings[flight->landed++].position;
        flight->progress.active = flight->landed < flight->landings.size();
        const Task& task = graph_.tasks[flight->task];
        const auto c = to_index(classes_.members.classes_in(task.group)[position]);
        Lane& lane = states_[c].lane(task.resource);
        if (lane.flight == static_cast<std::int32_t>(f)) leave_flight(c, lane);
      }
    }
    std::erase_if(under_way_, [this](std::size_t f) { return !flights_[f].progress.active; });
    return any;
  }

  // ---- other collectives ----

  void begin_transfer(std::uint32_t task, const Membership::Part& part) {
    const std::size_t t = free_transfer();
    CollectiveTransfer& transfer = transfers_[t];
    transfer.task = task;
    transfer.part = &part;
    transfer.progress = {prices_.seconds_of_part(graph_.tasks[task], part.ranks), 1, now_, true};
    transfer.computing = 0;
    for_part(transfer, [&](std::size_t c, Lane& lane, std::uint32_t) {
      lane.transfer = static_cast<std::int32_t>(t);
      states_[c].owed_s += contention_.message_s;
      transfer.computing += static_cast<int>(states_[c].was_computing);
      touch(c);
    });
  }

  std::size_t free_transfer() {
    for (std::size_t t = 0; t < transfers_.size(); ++t)
      if (!transfers_[t].progress.active) return t;
    transfers_.emplace_back();
    return transfers_.size() - 1;
  }

  // action(class, its lane, its slot) for the classes that a transfer, or a flight, joins.
  template <typename Joined, typename Action>
  void for_part(const Joined& joined, Action action) {
    const std::uint32_t task = joined.task;
    const doc::Resource resource = graph_.tasks[task].resource;
    const auto classes = classes_.members.classes_in(graph_.tasks[task].group);
    for (std::uint32_t k = joined.part->begin, end = joined.part->end; k < end; ++k) {
      const auto c = to_index(classes[k]);
      action(c, states_[c].lane(resource), times_.first[task] + k);
    }
  }

  void set_rates() {
    for (const std::size_t c : touched_) {
      states_[c].touched = false;
      note_computing(states_[c]);
      states_[c].pay(now_);
      set_class_rates(c);
    }
    touched_.clear();
    for (CollectiveTransfer& t : transfers_)
      if (t.progress.active) t.progress.set_rate(now_, network_rate(t.computing > 0));
    for (const std::size_t f : under_way_)
      flights_[f].progress.set_rate(now_, network_rate(flights_[f].computing > 0));
  }

  // Tells the transfers of a class that it begins or ceases to compute.
  void note_computing(ClassState& state) {
    const bool computing = state.computing();
    const int change = static_cast<int>(computing) - static_cast<int>(state.was_computing);
    if (change == 0) return;
    state.was_computing = computing;
    for (const Lane& lane : state.lanes)
      if (lane.transfer != kNoTransfer) transfers_[to_index(lane.transfer)].computing += change;
    for (const Lane& lane : state.lanes)
      if (lane.flight != kNoTransfer) flights_[to_index(lane.flight)].computing += change;
  }

  void set_class_rates(std::size_t c) {
    ClassState& state = states_[c];
    const double compute = compute_rate(state.communicating()) / coding_slowdown(state);
    const double network = network_rate(state.was_computing);
    next_end_[c] = kNever;
    for (std::size_t r = 0; r < kResources; ++r) {
      Lane& lane = state.lanes[r];
      next_end_[c] = std::min(next_end_[c], lane.due);
      if (!lane.running.active) continue;
      const auto resource = static_cast<Resource>(r);
      if (resource == Resource::network) lane.running.set_rate(now_, network);
      if ((resource == Resource::compute || resource == Resource::codec) && !lane.delayed())
        lane.running.set_rate(now_, compute);
      next_end_[c] = std::min(next_end_[c], lane.running.end());
    }
  }

  double next_end() const {
    double end = *std::min_element(next_end_.begin(), next_end_.end());
    for (const CollectiveTransfer& t : transfers_) end = std::min(end, t.progress.end());
    for (const std::size_t f : under_way_) end = std::min(end, flights_[f].end());
    return end;
  }

  // Ends whatever is due at now_. Returns whether anything was.
  bool finish_due() {
    bool any = false;
    for (CollectiveTransfer& t : transfers_) {
      if (!t.progress.active || t.progress.end() > now_) continue;
      t.progress.active = false;
      for_part(t, [this](std::size_t c, Lane& lane, std::uint32_t slot) {
        complete(slot);
        lane.advance();
        touch(c);
      });
      any = true;
    }
    for (std::size_t c = 0; c < states_.size(); ++c) {
      if (next_end_[c] > now_) continue;
      finish_class(c);
      any = true;
    }
    return land_due() || any;
  }

  void finish_class(std::size_t c) {
    next_end_[c] = kNever;
    for (Lane& lane : states_[c].lanes) {
      if (lane.running.end() <= now_ && lane.flight != kNoTransfer) {
        lane.running.active = false;
        leave_flight(c, lane);
      } else if (lane.running.end() <= now_) {
        if (!lane.delayed()) complete(lane.entries[lane.head].slot);
        lane.advance();
      }
      if (lane.due <= now_) lane.due = kNever;
      next_end_[c] = std::min({next_end_[c], lane.running.end(), lane.due});
    }
    touch(c);
  }

  void complete(std::uint32_t slot) {
    times_.end[slot] = last_ = now_;
    for (const std::uint32_t s : slots_.successors(slot))
      if (--slots_.waits[s] == 0) ready_[s] = now_;
    ++finished_;
  }

  const doc::TaskGraph& graph_;
  Prices& prices_;
  const RankClasses& classes_;
  const doc::Contention& contention_;
  TaskTimes& times_;
  SlotGraph slots_;
  std::vector<double> ready_;  // [slots] when the last predecessor was done
  std::vector<ClassState> states_;
  std::vector<double> next_end_;              // [classes] of their own running tasks
  std::vector<std::uint32_t> missing_begin_;  // [tasks] into missing_
  std::vector<std::uint32_t> missing_;
  std::vector<CollectiveTransfer> transfers_;  // ended ones are used again
  std::vector<std::int32_t> flight_of_;        // by part of each broadcast, as missing_
  std::vector<Flight> flights_;
  std::vector<std::size_t> under_way_;  // flights that have not landed everywhere
  std::vector<std::size_t> touched_;    // classes with news since rates were set
  double now_ = 0, last_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace

double run_fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
                 std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
                 TaskTimes& times) {
  lay_out_slots(graph, classes, times);
  return Fluid(graph, prices, classes, step_begins, contention, times).run();
}

}  // namespace linerate::sim
