// A simulation by events, for ranks that differ in speed or groups, and for Clusters whose
// computation and communication slow each other down.
//
// Every class of ranks has a lane a resource, and a lane runs its tasks in the Plan's order. A task
// in progress has `left` seconds of work at full speed and goes at a rate of at most 1. The loop in
// run() works as follows:
//   1. start_all(): start every task that may start now, until nothing more may start.
//   2. set_rates(): give each class whose state changed its new rates.
//   3. next_end(): find the next end of a task, transfer or landing, and go there.
//   4. finish_due(): end what is due, which frees its successors.
// Rates change at events alone, so the work done between two events is a product and not an
// integral.
//
// An example with two ranks: computation takes 1.25 times as long under communication, and
// communication 1.1 times as long under computation. An all-reduce takes 10 ms alone. Rank 0 comes
// to it at 1 ms and has 5 ms of computation left; rank 1 comes at 3 ms and computes nothing.
//      1 ms  Rank 0 waits. Nothing travels, so it computes at full speed.
//      3 ms  Rank 1 comes and the transfer begins. Rank 0 has 3 ms left, which now take 3.75 ms.
//   6.75 ms  Rank 0 ends its computation. Of the transfer 3.75 / 1.1 = 3.41 ms are done.
//  13.34 ms  The remaining 6.59 ms have passed at full speed. The transfer ends on both ranks.
//
// An event costs a look at every class and at everything that is under way. Ranks that are alike
// and do not contend get the same times from one pass over their tasks (simulator.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::sim {
namespace {

using doc::Resource;
using doc::Task;

// What is under way, and how far it has come.

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kDelay = kNoSlot;  // in place of a slot: a class's delay before a step
constexpr std::int32_t kNoTransfer = -1;
constexpr std::size_t kResources = doc::kResourceNames.size();

/// Work in progress: `left` seconds at full speed as of `since`, going at `rate`. At rate 0.8, 3 s
/// that were left at time 3 s end at 6.75 s. If the rate returns to 1 at 5 s, 1.4 s are left then,
/// and the end moves to 6.4 s.
struct Progress {
  double left = 0, rate = 1, since = 0;
  bool active = false;

  double end() const { return active ? since + left / rate : kNever; }
  /// More work, from now on.
  void add(double now, double seconds) {
    left = std::max(0.0, left - (now - since) * rate) + seconds;
    since = now;
  }
  void set_rate(double now, double new_rate) {
    if (rate == new_rate) return;
    left = std::max(0.0, left - (now - since) * rate);
    since = now;
    rate = new_rate;
  }
};

// A task of a lane, and its slot in TaskTimes for the lane's class.
struct Entry {
  std::uint32_t task, slot;
};

/// The tasks of one class on one resource, in order. The head may be at a collective: then the
/// class has come to it, and `transfer` says which transfer once all of its part have. Of a
/// broadcast it says so once the root has come.
struct Lane {
  std::vector<Entry> entries;
  std::size_t head = 0;
  Progress running;
  bool at_collective = false;
  std::int32_t transfer = kNoTransfer;
  double due = kNever;  // of a collective that the class is ready for: its start

  // Whether the head may be started, if its predecessors allow it.
  bool idle() const { return !running.active && !at_collective && head < entries.size(); }
  // Whether the lane waits out its class's delay before a step.
  bool delayed() const { return running.active && entries[head].slot == kDelay; }
  // Goes on to the next entry.
  void advance() {
    ++head;
    running.active = at_collective = false;
    transfer = kNoTransfer;
  }
};

struct ClassState {
  std::array<Lane, kResources> lanes;
  bool was_computing = false, touched = false;
  double owed_s = 0;  // Contention::message_s of collectives under way, not yet taken

  Lane& lane(doc::Resource r) { return lanes[to_index(r)]; }
  const Lane& lane(doc::Resource r) const { return lanes[to_index(r)]; }
  // Whether the class computes, and not only waits out a delay.
  bool computes() const {
    const Lane& compute = lane(doc::Resource::compute);
    return compute.running.active && !compute.delayed();
  }
  bool codes() const { return lane(doc::Resource::codec).running.active; }
  // Whether the class's computation is slowed: a transfer or a broadcast that it has joined is
  // under way.
  bool communicating() const {
    const Lane& network = lane(doc::Resource::network);
    return network.running.active || network.transfer != kNoTransfer;
  }
  /// Adds the processor time of collectives (Contention::message_s) to the computation that runs
  /// under them. A collective under which nothing is computed costs nothing.
  void pay(double now) {
    Lane& compute = lane(doc::Resource::compute);
    if (!communicating()) owed_s = 0;
    if (owed_s == 0 || !compute.running.active || compute.delayed()) return;
    compute.running.add(now, owed_s);
    owed_s = 0;
  }
};

/// A collective on its way between the classes of one part.
///
/// Classes come to a broadcast and leave it one by one. Each class carries the message for a while
/// itself, with its lane running, and waits until the message has reached it. Of all other
/// collectives the classes begin and end together, so these have no landings.
struct Transfer {
  struct Landing {
    double after_s;          // of the root's own start, at full speed
    std::uint32_t position;  // of the class within the group
  };

  std::uint32_t task = 0;
  const Membership::Part* part = nullptr;
  Progress progress;
  int computing = 0;   // classes under way that compute
  double delay_s = 0;  // Contention::message_delay_s, as far as it has not passed
  double held_s = 0;   // `progress.left` when the delay was added to it; 0: it is not in it
  BroadcastTime time{};
  std::vector<Landing> landings;  // by time; `progress` is of all
  std::size_t landed = 0;

  /// The end of the next landing. `progress` counts down to the last landing, so what is done of it
  /// is done of the next one too.
  double end() const {
    if (landings.empty() || !progress.active) return progress.end();
    const double done_s = landings.back().after_s - progress.left;
    return progress.since + std::max(0.0, landings[landed].after_s - done_s) / progress.rate;
  }
  /// The delay comes before the work and passes only while a class computes. What is left of it
  /// when the last one ceases waits for the next one.
  void set_rate(double now, double rate) {
    if (computing > 0 && held_s == 0 && delay_s > 0) {
      progress.add(now, delay_s);
      held_s = progress.left;
    } else if (computing == 0 && held_s > 0) {
      progress.add(now, 0);
      delay_s = std::max(0.0, delay_s - (held_s - progress.left));
      progress.add(now, -delay_s);
      held_s = 0;
    }
    progress.set_rate(now, rate);
  }
};

// The edges of a graph between the slots that `times` lays out for it, once for every class that
// has both ends. A class waits only for the predecessors of a task that it has itself; between
// classes only collectives wait. So the slots of two classes share no edge. doc::VariantIndex says
// the same of tasks.
doc::Waits waits_of_slots(const doc::TaskGraph& graph, const TaskTimes& times) {
  return {times.first.back(), [&](const auto& action) {
            for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
              for (const std::uint32_t p : graph.predecessors(i)) times.for_shared(p, i, action);
          }};
}

// The factor on a task's duration on ranks of this class.
double slowness(const Task& task, const RankClass& rank_class) {
  return task.resource == Resource::compute || task.resource == Resource::codec
             ? rank_class.compute_factor
             : 1;
}

// Gives every task its slots.
void lay_out_slots(const doc::TaskGraph& graph, const RankClasses& classes, TaskTimes& times) {
  times.members = classes.members;
  times.first.resize(graph.tasks.size() + 1);
  times.group.resize(graph.tasks.size());
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    times.first[i] = next;
    times.group[i] = graph.tasks[i].group;
    next += classes.members.count(graph.tasks[i].group);
  }
  times.first.back() = next;
  if (times.end.size() < next) times.end.resize(next);
  if (times.start.size() < next) times.start.resize(next);
}

// One simulation. `times` has its slots already, and run() fills its starts and ends.
class Fluid {
 public:
  Fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
        std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
        TaskTimes& times)
      : graph_(graph),
        prices_(prices),
        classes_(classes),
        contention_(contention),
        contends_(contention.any()),
        times_(times),
        slots_(waits_of_slots(graph, times)),
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
  // Puts every task into the lane of its resource, in each class that has the task. A class that is
  // late by the Cluster's rank_speeds gets its delay as a first entry of the step's computation.
  void fill_lanes(std::span<const std::uint32_t> step_begins) {
    std::size_t step = 0;
    for (std::uint32_t i = 0; i < graph_.tasks.size(); ++i) {
      for (; step < step_begins.size() && step_begins[step] == i; ++step)
        for (std::size_t c = 0; c < states_.size(); ++c)
          if (classes_.classes[c].delay_s > 0)
            states_[c].lane(Resource::compute).entries.push_back({0, kDelay});
      const Task& task = graph_.tasks[i];
      std::uint32_t slot = times_.first[i];
      for (const std::int32_t c : classes_.members.classes_in(task.group))
        states_[to_index(c)].lane(task.resource).entries.push_back({i, slot++});
    }
  }

  // Counts the classes that have not yet come to each part of each collective. The part's transfer
  // begins when its count falls to 0.
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

  // Starts the head of each idle lane of the class if the head waits for no predecessor. Tasks
  // after the head are not looked at: a lane runs in order even if a later task is ready.
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

  // Whether a collective still waits for the Cluster's start_delay_s, which counts from the end of
  // its last predecessor. If so, its start becomes an event of the lane.
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

  // The index of the part that an entry's class joins, among the parts of the group. A class's slot
  // says where the class stands in the group, and the parts divide these positions.
  std::size_t part_of(Entry entry) const {
    const auto parts = classes_.members.parts_of(graph_.tasks[entry.task].group);
    const std::uint32_t position = entry.slot - times_.first[entry.task];
    const auto part = std::ranges::upper_bound(parts, position, {}, &Membership::Part::end);
    return to_index(part - parts.begin());
  }

  // The class waits at its collective from now on. If it is the last of its part, the transfer
  // begins.
  void arrive(Lane& lane, Entry entry) {
    lane.at_collective = true;
    const std::size_t part = part_of(entry);
    if (--missing_[missing_begin_[entry.task] + part] == 0)
      begin_transfer(entry.task, classes_.members.parts_of(graph_.tasks[entry.task].group)[part]);
  }

  // ---- broadcasts ----

  // A broadcast waits for its root alone. When the root comes, the message takes off, and every
  // class that waited for it boards. A class that comes later boards at once. Say that a rank's own
  // part takes 2 ms and the last rank is reached 5 ms after the root's start. The root comes at 1
  // ms, rank 1 comes at 0 ms and rank 2 at 10 ms. The root leaves at 3 ms. Rank 1 boards at 1 ms
  // and leaves when the message lands there, at 6 ms if it is the farthest rank. Rank 2 boards at
  // 10 ms and leaves at 12 ms, because the message has landed there long before.
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
    for_part(transfers_[to_index(flight)], [&](std::size_t other, Lane& its, std::uint32_t) {
      if (its.at_collective && its.entries[its.head].task == entry.task) board(flight, other, its);
    });
  }

  // Makes the flight of a part's message: when it lands at each class, counted from now and at full
  // speed. Returns the transfer's index.
  std::int32_t take_off(std::uint32_t task, std::size_t part, const Rooted& rooted) {
    const Membership::Part& members = classes_.members.parts_of(graph_.tasks[task].group)[part];
    const BroadcastTime time = prices_.broadcast_of_part(graph_.tasks[task], members.ranks);
    std::vector<Transfer::Landing> landings;
    for (std::uint32_t k = members.begin; k < members.end; ++k)
      landings.push_back({time.reaches_s(rooted.share[k]), k});
    std::ranges::stable_sort(landings, {}, &Transfer::Landing::after_s);
    const std::int32_t flight = begin(task, members, landings.back().after_s);
    transfers_[to_index(flight)].time = time;
    transfers_[to_index(flight)].landings = std::move(landings);
    return flight;
  }

  // The class carries its own part of the message, `own_s`, on its lane.
  void board(std::int32_t flight, std::size_t c, Lane& lane) {
    join(flight, c, lane);
    run(lane, c, transfers_[to_index(flight)].time.own_s);
  }

  // Whether the message has reached the class at this position of the group.
  bool has_landed(const Transfer& flight, std::uint32_t position) const {
    const auto landed = flight.landings.begin() + static_cast<std::ptrdiff_t>(flight.landed);
    return std::any_of(flight.landings.begin(), landed,
                       [position](const auto& l) { return l.position == position; });
  }

  // Ends the broadcast for a class. The class must have done its own part, and the message must
  // have reached it; whichever comes last calls this with success.
  void leave_flight(std::size_t c, Lane& lane) {
    Transfer& flight = transfers_[to_index(lane.transfer)];
    const std::uint32_t slot = lane.entries[lane.head].slot;
    if (lane.running.active || !has_landed(flight, slot - times_.first[flight.task])) return;
    flight.computing -= static_cast<int>(states_[c].was_computing);
    complete(slot);
    lane.advance();
    touch(c);
  }

  // Lands the message at the next class.
  void land(std::size_t f) {
    Transfer& flight = transfers_[f];
    const std::uint32_t position = flight.landings[flight.landed++].position;
    flight.progress.active = flight.landed < flight.landings.size();
    const Task& task = graph_.tasks[flight.task];
    const auto c = to_index(classes_.members.classes_in(task.group)[position]);
    Lane& lane = states_[c].lane(task.resource);
    if (lane.transfer == static_cast<std::int32_t>(f)) leave_flight(c, lane);
  }

  // ---- all collectives ----

  std::int32_t begin(std::uint32_t task, const Membership::Part& part, double seconds) {
    if (free_.empty()) free_.push_back(transfers_.size()), transfers_.emplace_back();
    const std::size_t t = free_.back();
    free_.pop_back();
    Transfer& transfer = transfers_[t];
    transfer.task = task;
    transfer.part = &part;
    transfer.progress = {seconds, 1, now_, true};
    transfer.computing = 0;
    transfer.delay_s = contention_.message_delay_s;
    transfer.held_s = 0;
    under_way_.push_back(t);
    return static_cast<std::int32_t>(t);
  }

  // Only from here on the collective slows the class's computation, and the class owes
  // Contention::message_s once.
  void join(std::int32_t transfer, std::size_t c, Lane& lane) {
    lane.transfer = transfer;
    states_[c].owed_s += contention_.message_s;
    transfers_[to_index(transfer)].computing += static_cast<int>(states_[c].was_computing);
    touch(c);
  }

  // All classes of the part have come, so the data moves from now on.
  void begin_transfer(std::uint32_t task, const Membership::Part& part) {
    const std::int32_t transfer =
        begin(task, part, prices_.seconds_of_part(graph_.tasks[task], part.ranks));
    for_part(transfers_[to_index(transfer)],
             [&](std::size_t c, Lane& lane, std::uint32_t) { join(transfer, c, lane); });
  }

  // Ends the collective for all classes of its part.
  void end_for_all(Transfer& transfer) {
    transfer.progress.active = false;
    for_part(transfer, [this](std::size_t c, Lane& lane, std::uint32_t slot) {
      complete(slot);
      lane.advance();
      touch(c);
    });
  }

  // Ends and lands whatever is due at now_. Returns whether anything was.
  bool end_transfers() {
    bool any = false;
    for (const std::size_t t : under_way_)
      for (; transfers_[t].end() <= now_; any = true)
        if (transfers_[t].landings.empty())
          end_for_all(transfers_[t]), free_.push_back(t);
        else
          land(t);
    if (any)
      std::erase_if(under_way_, [this](std::size_t t) { return !transfers_[t].progress.active; });
    return any;
  }

  // action(class, its lane, its slot) for the classes that a transfer joins.
  template <typename Action>
  void for_part(const Transfer& joined, Action action) {
    const std::uint32_t task = joined.task;
    const doc::Resource resource = graph_.tasks[task].resource;
    const auto classes = classes_.members.classes_in(graph_.tasks[task].group);
    for (std::uint32_t k = joined.part->begin, end = joined.part->end; k < end; ++k) {
      const auto c = to_index(classes[k]);
      action(c, states_[c].lane(resource), times_.first[task] + k);
    }
  }

  // Rates follow from what runs, so they are set once everything that may start now has started. A
  // class that was not touched since the last event runs at its old rates. Transfers are all looked
  // at: a class of one part changes the rate of the whole transfer.
  void set_rates() {
    for (const std::size_t c : touched_) {
      states_[c].touched = false;
      if (!contends_) continue;  // all rates are 1
      note_computing(states_[c]);
      states_[c].pay(now_);
      set_class_rates(c);
    }
    touched_.clear();
    if (!contends_) return;
    for (const std::size_t t : under_way_)
      transfers_[t].set_rate(now_, network_rate(transfers_[t].computing > 0));
  }

  // Tells the transfers of a class that it begins or ceases to compute or to code. Either slows
  // them down.
  void note_computing(ClassState& state) {
    const bool computing = state.computes() || state.codes();
    const int change = static_cast<int>(computing) - static_cast<int>(state.was_computing);
    if (change == 0) return;
    state.was_computing = computing;
    for (const Lane& lane : state.lanes)
      if (lane.transfer != kNoTransfer) transfers_[to_index(lane.transfer)].computing += change;
  }

  // Computation and coding share the slowdown by communication, and slow each other down as well.
  // The network lane has work of its own only for broadcasts; other collectives progress as
  // transfers.
  void set_class_rates(std::size_t c) {
    ClassState& state = states_[c];
    const double compute = (state.communicating() ? 1 / contention_.compute_slowdown : 1) /
                           (state.computes() && state.codes() ? contention_.coding_slowdown : 1);
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

  // The earliest end of anything that is under way; kNever if nothing is, and then the run is over.
  double next_end() const {
    double end = *std::min_element(next_end_.begin(), next_end_.end());
    for (const std::size_t t : under_way_) end = std::min(end, transfers_[t].end());
    return end;
  }

  // Ends whatever is due at now_. Returns whether anything was.
  bool finish_due() {
    bool any = end_transfers();
    for (std::size_t c = 0; c < states_.size(); ++c) {
      if (next_end_[c] > now_) continue;
      finish_class(c);
      any = true;
    }
    return any;
  }

  // Ends the class's own tasks that are due. A lane on a broadcast may have done its part while the
  // message has not landed; then the lane stays as it is.
  void finish_class(std::size_t c) {
    next_end_[c] = kNever;
    for (Lane& lane : states_[c].lanes) {
      if (lane.running.end() <= now_ && lane.transfer != kNoTransfer) {
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

  // Ends a slot. Successors in the same class wait for one predecessor less.
  void complete(std::uint32_t slot) {
    times_.end[slot] = last_ = now_;
    for (const std::uint32_t s : slots_.successors_of(slot))
      if (--slots_.waits[s] == 0) ready_[s] = now_;
    ++finished_;
  }

  const doc::TaskGraph& graph_;
  Prices& prices_;
  const RankClasses& classes_;
  const doc::Contention& contention_;
  const bool contends_;
  TaskTimes& times_;
  doc::Waits slots_;           // `waits`: for predecessors that are not done
  std::vector<double> ready_;  // [slots] when the last predecessor was done
  std::vector<ClassState> states_;
  std::vector<double> next_end_;              // [classes] of their own running tasks
  std::vector<std::uint32_t> missing_begin_;  // [tasks] into missing_
  std::vector<std::uint32_t> missing_;
  std::vector<Transfer> transfers_;      // flights stay, since classes may come late
  std::vector<std::size_t> free_;        // others that have ended are used again
  std::vector<std::int32_t> flight_of_;  // by part of each broadcast, as missing_
  std::vector<std::size_t> under_way_;   // transfers that have not ended, or landed, everywhere
  std::vector<std::size_t> touched_;     // classes with news since rates were set
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
