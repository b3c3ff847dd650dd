// Private: what is under way in the simulation by events (fluid.cpp), and how far it has come.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::sim {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr std::uint32_t kDelay =
    kNoSlot;  // in place of a slot: a class's delay before a step
inline constexpr std::int32_t kNoTransfer = -1;
inline constexpr std::size_t kResources = doc::kResourceNames.size();

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
/// class has come to it, and `transfer` says which transfer once all of its part have.
struct Lane {
  std::vector<Entry> entries;
  std::size_t head = 0;
  Progress running;
  bool at_collective = false;
  std::int32_t transfer = kNoTransfer;
  std::int32_t flight = kNoTransfer;  // of a broadcast that the class takes part in
  double due = kNever;                // of a collective that the class is ready for: its start

  // Whether the head may be started, if its predecessors allow it.
  bool idle() const { return !running.active && !at_collective && head < entries.size(); }
  // Whether the lane waits out its class's delay before a step.
  bool delayed() const { return running.active && entries[head].slot == kDelay; }
  // Goes on to the next entry.
  void advance() {
    ++head;
    running.active = at_collective = false;
    transfer = flight = kNoTransfer;
  }
};

struct ClassState {
  std::array<Lane, kResources> lanes;
  bool was_computing = false, touched = false;
  double owed_s = 0;  // Contention::message_s of collectives under way, not yet taken

  Lane& lane(doc::Resource r) { return lanes[to_index(r)]; }
  const Lane& lane(doc::Resource r) const { return lanes[to_index(r)]; }
  // Whether the class slows its transfers down: it computes or codes, and not only waits out a
  // delay.
  bool computing() const {
    const Lane& compute = lane(doc::Resource::compute);
    return (compute.running.active && !compute.delayed()) ||
           lane(doc::Resource::codec).running.active;
  }
  bool computes_beside_coding() const {
    const Lane& compute = lane(doc::Resource::compute);
    return compute.running.active && !compute.delayed() &&
           lane(doc::Resource::codec).running.active;
  }
  // Whether the class's computation is slowed: a transfer or a broadcast that it has joined is
  // under way.
  bool communicating() const {
    const Lane& network = lane(doc::Resource::network);
    return network.running.active || network.transfer != kNoTransfer ||
           network.flight != kNoTransfer;
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

/// What a collective and a broadcast on their way have in common.
struct Transfer {
  std::uint32_t task = 0;
  const Membership::Part* part = nullptr;
  Progress progress;
  int computing = 0;   // classes under way that compute
  double delay_s = 0;  // Contention::message_delay_s, as far as it has not passed
  double held_s = 0;   // `progress.left` when the delay was added to it; 0: it is not in it

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

/// A collective on its way between the classes of one part.
using CollectiveTransfer = Transfer;

/// A broadcast on its way. Classes come to it and leave it one by one. Each class carries the
/// message for a while itself, with its lane running, and waits until the message has reached it.
struct Flight : Transfer {
  struct Landing {
    double after_s;          // of the root's own start, at full speed
    std::uint32_t position;  // of the class within the group
  };

  BroadcastTime time{};
  std::vector<Landing> landings;  // by time; `progress` is of all
  std::size_t landed = 0;

  /// The end of the next landing. `progress` counts down to the last landing, so what is done of it
  /// is done of the next one too.
  double end() const {
    if (!progress.active) return kNever;
    const double done_s = landings.back().after_s - progress.left;
    return progress.since + std::max(0.0, landings[landed].after_s - done_s) / progress.rate;
  }
};

// Discrete events. Each class of ranks works through its tasks at its own speed. Computation and
// communication of a rank slow each other down by the Cluster's factors while both are active, and
// so do computation and coding.

/// Simulates a graph. Returns the end of the last task, in seconds; `times` receives the start and
/// end of every slot.
///
/// - Computation means the resources compute and codec. Host tasks and delays slow nothing.
/// - A collective transfers once all ranks of its part have come to it. It slows computation from
///   then on; a rank that waits for the others is not slowed.
/// - A collective runs at the pace of its slowest rank: it is slowed while any rank of its part
///   computes.
/// - A collective is held up for message_delay_s, as far as a rank of its part computes.
/// - A broadcast waits for its root alone (BroadcastTime).
/// - Computation and coding of one rank slow each other down, too.
/// - While a rank waits out the Cluster's delay before a collective, it does not transfer.
///
/// `step_begins`: the first task of each step, where delays of ranks are due.
double run_fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
                 std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
                 TaskTimes& times);

}  // namespace linerate::sim
