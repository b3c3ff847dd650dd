// Places inverses on ranks. An inverse that one rank makes for all costs a broadcast; an inverse
// that every rank makes costs its time on each. Large inverses are worth the broadcast: they take
// d^3, and their messages d^2. So the search is over a cut: the k longest inverses have owners, and
// the others are made everywhere, while the broadcasts travel.
//
// An example: inverses of 7, 5, 4 and 3 ms on two ranks. With k = 0 each rank computes 19 ms. With
// k = 2 one rank owns the 7 ms, and one the 5 ms. Both make the others, so the first one computes 7
// + 7 = 14 ms. With k = 4 the ranks own 7 + 3 and 5 + 4 ms, which takes 10 ms and four broadcasts.
// Which k ends first depends on the network.
#include "linerate/plan/kfac/placement.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

// How far ranks and their channel are while factors arrive.

/// The channel up to the first broadcast.
class Arrivals {
 public:
  explicit Arrivals(const PlacementProblem& problem) : problem_(&problem) {}

  /// When a transfer is through, in seconds, if ranks compute until `busy_s`. Those before it are
  /// through as well. Ask in the order of transfers.
  double through_s(std::int32_t transfer, double busy_s) {
    const Channel channel{busy_s, problem_->communication_slowdown};
    for (; next_ <= transfer; ++next_) {
      const Transfer& t = problem_->transfers[to_index(next_)];
      free_s_ = channel.end_of(std::max(free_s_, t.ready_s), t.seconds);
    }
    return free_s_;
  }
  bool brings(std::int32_t transfer) const { return transfer >= next_; }
  double last_s(double busy_s) {
    return through_s(static_cast<std::int32_t>(problem_->transfers.size()) - 1, busy_s);
  }

 private:
  const PlacementProblem* problem_;
  std::int32_t next_ = 0;
  double free_s_ = 0;
};

/// The clocks of ranks at work. A rank's clock is the sum of everybody's work and its own. So work
/// of all ranks moves one number instead of `ranks`. An example: all work 4 ms, rank 1 another 3
/// ms, and all 2 ms. everybody_s_ is 6, own_s_ is {0, 3}, and the clocks are at 6 and 9 ms.
class Clocks {
 public:
  explicit Clocks(const PlacementProblem& problem)
      : everybody_s_(problem.start_s), own_s_(to_index(problem.ranks)) {}

  /// Returns when the owner, or every rank, is done.
  double work(std::int32_t owner, double seconds) {
    if (owner == kEverywhere) return (everybody_s_ += seconds) + most_s_;
    double& own_s = own_s_[to_index(owner)];
    own_s += seconds;
    most_s_ = std::max(most_s_, own_s);
    least_s_ = -1;
    return everybody_s_ + own_s;
  }
  void wait_until(double at_s) {
    const double own_at_s = at_s - everybody_s_;
    for (double& own_s : own_s_) own_s = std::max(own_s, own_at_s);
    most_s_ = std::max(most_s_, own_at_s);
    least_s_ = -1;
  }
  double of(std::int32_t rank) const { return everybody_s_ + own_s_[to_index(rank)]; }
  double latest_s() { return everybody_s_ + most_s_; }
  double earliest_s() {
    if (least_s_ < 0) least_s_ = *std::min_element(own_s_.begin(), own_s_.end());
    return everybody_s_ + least_s_;
  }

 private:
  double everybody_s_, most_s_ = 0, least_s_ = -1;  // negative: to be looked up
  std::vector<double> own_s_;
};

/// Which transfer brings what inverse i is made of; negative: it is there.
std::int32_t arrival_of(const PlacementProblem& problem, std::int32_t i) {
  return problem.after.empty() ? -1 : problem.after[to_index(i)];
}

/// Indices, largest value first, ties by index.
template <typename Value>
std::vector<std::int32_t> descending(const std::vector<Value>& values) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::int32_t i) { return values[to_index(i)]; });
  return order;
}

/// `done_s`: when each inverse is made, with ranks working in `order`. `computed_s`: when the last
/// rank is done with inverses and with the layers that need no message. `free_s`: when the channel
/// is free for broadcasts. All in seconds.
struct Timetable {
  std::vector<double> done_s;
  double computed_s = 0, free_s = 0;
};

// Plays a placement through: arrivals, inverses in their order, then messages and directions. The
// searches call this thousands of times, so it follows the clocks of ranks and of the channel and
// no single task.

/// The last transfer that brings a factor; negative if all are there. Gradients may follow it.
std::int32_t last_arrival(const PlacementProblem& problem) {
  return problem.after.empty() ? -1 : *std::max_element(problem.after.begin(), problem.after.end());
}

/// For each layer, the number of its inverses that come by a message.
std::vector<int> messages_missing(const PlacementProblem& problem, const Placement& placement) {
  std::vector<int> missing(problem.layer_s.size());
  if (problem.layer.empty()) return missing;
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    if (placement.owner[i] != kEverywhere) ++missing[to_index(problem.layer[i])];
  return missing;
}

/// Layers in the order in which their gradients arrive, the last layer first.
std::vector<std::int32_t> layers_by_arrival(const PlacementProblem& problem) {
  std::vector<std::int32_t> order(problem.layer_s.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (!problem.gradient_after.empty())
    std::ranges::stable_sort(
        order, {}, [&](std::int32_t layer) { return problem.gradient_after[to_index(layer)]; });
  return order;
}

void precondition_what_misses_nothing(const PlacementProblem& problem, const Placement& placement,
                                      Arrivals& arrivals, Timetable& table) {
  const std::vector<int> missing = messages_missing(problem, placement);
  for (const std::int32_t l : layers_by_arrival(problem)) {
    if (missing[to_index(l)] > 0) continue;
    const std::int32_t gradient =
        problem.gradient_after.empty() ? -1 : problem.gradient_after[to_index(l)];
    if (arrivals.brings(gradient))
      table.computed_s = std::max(table.computed_s, arrivals.through_s(gradient, table.computed_s));
    table.computed_s += problem.layer_s[to_index(l)];
  }
}

Timetable timetable_of(const PlacementProblem& problem, const Placement& placement) {
  Timetable table;
  table.done_s.resize(problem.inverse_s.size());
  Arrivals arrivals(problem);
  Clocks clocks(problem);
  if (placement.behind_arrivals)
    clocks.wait_until(arrivals.through_s(last_arrival(problem), clocks.latest_s()));
  for (const std::int32_t i : placement.order) {
    if (const std::int32_t arrival = arrival_of(problem, i); arrivals.brings(arrival))
      clocks.wait_until(arrivals.through_s(arrival, clocks.latest_s()));
    table.done_s[to_index(i)] =
        clocks.work(placement.owner[to_index(i)], problem.inverse_s[to_index(i)]);
  }
  table.computed_s = clocks.latest_s();
  precondition_what_misses_nothing(problem, placement, arrivals, table);
  table.free_s = arrivals.last_s(table.computed_s);
  return table;
}

/// A lower bound of the end, whatever travels together. Computation and the channel's other
/// transfers come first, and layers that miss a message after both.
double ends_after_s(const PlacementProblem& problem, const Timetable& table,
                    const Placement& placement) {
  double left_s = 0;
  if (problem.columns == 1 && !problem.layer.empty()) {
    const std::vector<int> missing = messages_missing(problem, placement);
    for (std::size_t l = 0; l < missing.size(); ++l)
      if (missing[l] > 0) left_s += problem.layer_s[l];
  }
  return std::max(table.computed_s, table.free_s) + left_s;
}

// Follows the messages in their order, each column on a channel of its own. A message leaves once
// its last inverse is made. A layer is finished after the message that brings its last inverse.
double end_of_layers(const PlacementProblem& problem, const Timetable& table,
                     const Placement& placement) {
  std::vector<int> missing = messages_missing(problem, placement);
  const auto layer_of = [&](std::int32_t i) { return to_index(problem.layer[to_index(i)]); };
  const Channel channel{table.computed_s, problem.communication_slowdown};
  // A rank is in one column.
  std::vector<double> free_s(to_index(problem.columns), table.free_s),
      ends_s(free_s.size(), std::max(table.computed_s, table.free_s));
  auto member = placement.sent.begin();
  for (const std::int32_t end : placement.ends) {
    const auto behind = placement.sent.begin() + end;
    const auto column = to_index(placement.owner[to_index(*member)] % problem.columns);
    double done_s = free_s[column];
    std::int64_t elements = 0;
    for (auto m = member; m != behind; ++m) {
      done_s = std::max(done_s, table.done_s[to_index(*m)]);
      elements += problem.elements.empty() ? 0 : problem.elements[to_index(*m)];
    }
    const double seconds = problem.seconds_of ? problem.seconds_of(elements, behind - member)
                                              : problem.broadcast_s[to_index(*member)];
    free_s[column] = channel.end_of(done_s, seconds);
    ends_s[column] = std::max(ends_s[column], free_s[column]);
    for (; member != behind; ++member)
      if (!problem.layer.empty() && --missing[layer_of(*member)] == 0)
        ends_s[column] += problem.layer_s[layer_of(*member)];
  }
  return *std::max_element(ends_s.begin(), ends_s.end());
}

// Given owners, finds the order of work and of messages. Ranks have to work in one order of tasks
// (the Plan's), though each does only its own. Three orders are tried, and three rules of sending
// for each:
// - Wait for all factors, then the longest inverse first.
// - As factors arrive: whatever begins before the next arrival comes before it. How much of the
//   common work fits is counted by the latest rank's clock, or by the earliest's.
//
// An example: two ranks; factors a and b are there, c arrives at 10 ms. Rank 0 owns a (6 ms), rank
// 1 owns b (3 ms), and everybody inverts d (4 ms), which is there too. By the latest clock d begins
// at 6 ms, so it comes before c's arrival. Rank 0 is done with d at 10 ms, rank 1 at 7 ms. Then
// both wait for c.

// The inverses in the order of their arrivals, the longest first among those of one arrival.
std::vector<std::int32_t> by_arrival(const PlacementProblem& problem,
                                     std::vector<std::int32_t> longest_first) {
  std::ranges::stable_sort(longest_first, {},
                           [&](std::int32_t i) { return arrival_of(problem, i); });
  return longest_first;
}

// The transfers that complete some inverse. All those that are through when ranks begin are one
// stage.
std::vector<std::int32_t> stages_of_arrival(const PlacementProblem& problem) {
  std::vector<std::int32_t> stages = {-1};
  stages.insert(stages.end(), problem.after.begin(), problem.after.end());
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  Arrivals arrivals(problem);
  const auto late = std::find_if(stages.begin(), stages.end(), [&](std::int32_t stage) {
    return arrivals.through_s(stage, problem.start_s) > problem.start_s;
  });
  if (late > stages.begin() + 1) stages.erase(stages.begin(), late - 1);
  return stages;
}

PlacementProblem without_arrivals(PlacementProblem problem) {
  problem.after = {};
  return problem;
}

std::vector<std::size_t> places_in(const std::vector<std::int32_t>& order) {
  std::vector<std::size_t> places(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) places[to_index(order[k])] = k;
  return places;
}

/// What inverses wait for, whoever owns them: which arrive when, and in how many stages.
struct ArrivalStages {
  ArrivalStages(const PlacementProblem& of, const std::vector<std::int32_t>& longest_first)
      : problem(of), coming(by_arrival(of, longest_first)), stages(stages_of_arrival(of)) {}

  PlacementProblem problem;
  std::vector<std::int32_t> coming;  // inverses as they arrive, at once the longest first
  /// Transfers that bring some, ascending; what is there when ranks are free is one stage.
  std::vector<std::int32_t> stages;
};

/// Which clock decides how much of everybody's work comes before an arrival.
using Pace = double (Clocks::*)();

/// Orders work as factors arrive. In each stage the inverses that an arrival completes join those
/// that wait, and work begins until the next arrival is due. Owned work comes first, because others
/// wait for its messages.
class Work {
 public:
  Work(const ArrivalStages& arriving, const std::vector<std::size_t>& place,
       const std::vector<std::int32_t>& owner, Pace pace)
      : problem_(arriving.problem),
        stages_(arriving.stages),
        coming_(arriving.coming),
        place_(place),
        owner_(owner),
        pace_(pace),
        arrivals_(problem_),
        clocks_(problem_) {
    order_.reserve(coming_.size());
  }

  std::vector<std::int32_t> order() {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s] >= 0) clocks_.wait_until(arrivals_.through_s(stages_[s], clocks_.latest_s()));
      admit(stages_[s]);
      const bool last = s + 1 == stages_.size();
      fill(last ? std::numeric_limits<double>::infinity() : due_s(stages_[s + 1]));
    }
    return std::move(order_);
  }

 private:
  /// When the next arrival is due, if ranks work on what they have until then.
  double due_s(std::int32_t next) {
    double left_s = 0;
    for (const std::int32_t i : everywhere_) left_s += problem_.inverse_s[to_index(i)];
    return Arrivals(arrivals_).through_s(next, clocks_.latest_s() + left_s);
  }

  /// What this arrival completes joins what waits, the longest first.
  void admit(std::int32_t arrived) {
    const auto owned = static_cast<std::ptrdiff_t>(owned_.size()),
               everywhere = static_cast<std::ptrdiff_t>(everywhere_.size());
    for (; admitted_ < coming_.size() && arrival_of(problem_, coming_[admitted_]) <= arrived;
         ++admitted_) {
      const std::int32_t i = coming_[admitted_];
      (owner_[to_index(i)] == kEverywhere ? everywhere_ : owned_).push_back(i);
    }
    sort_from(owned, owned_);
    sort_from(everywhere, everywhere_);
  }
  void sort_from(std::ptrdiff_t begin, std::vector<std::int32_t>& waiting) const {
    const auto is_longer = [this](std::int32_t a, std::int32_t b) {
      return place_[to_index(a)] < place_[to_index(b)];
    };
    const auto joined = waiting.begin() + begin;
    if (!std::is_sorted(joined, waiting.end(), is_longer))  // of several arrivals
      std::sort(joined, waiting.end(), is_longer);
    if (begin > 0) std::inplace_merge(waiting.begin(), joined, waiting.end(), is_longer);
  }

  // Work begins until that time. An owner's work counts by its own clock.
  void fill(double until_s) {
    std::erase_if(owned_, [&](std::int32_t i) {
      const bool begins = clocks_.of(owner_[to_index(i)]) < until_s;
      if (begins) work(i);
      return begins;
    });
    auto next = everywhere_.begin();
    while (next != everywhere_.end() && (clocks_.*pace_)() < until_s) work(*next++);
    everywhere_.erase(everywhere_.begin(), next);
  }
  void work(std::int32_t i) {
    clocks_.work(owner_[to_index(i)], problem_.inverse_s[to_index(i)]);
    order_.push_back(i);
  }

  const PlacementProblem& problem_;
  const std::vector<std::int32_t>&stages_, &coming_;
  const std::vector<std::size_t>& place_;
  const std::vector<std::int32_t>& owner_;
  Pace pace_;
  Arrivals arrivals_;
  Clocks clocks_;
  std::size_t admitted_ = 0;                      // of coming_
  std::vector<std::int32_t> owned_, everywhere_;  // waiting, the longest first
  std::vector<std::int32_t> order_;
};

/// What a column of ranks has to send, in the order in which its ranks work.
struct Outbox {
  std::vector<std::int32_t> members, root;
  std::vector<double> done_s;
  std::vector<std::int64_t> elements;
};

std::vector<Outbox> outboxes_of(const PlacementProblem& problem, const Timetable& table,
                                const Placement& placement) {
  std::vector<Outbox> all(to_index(problem.columns));
  for (const std::int32_t i : placement.order) {
    const std::int32_t owner = placement.owner[to_index(i)];
    if (owner == kEverywhere) continue;
    Outbox& outbox = all[to_index(owner % problem.columns)];
    outbox.members.push_back(i), outbox.root.push_back(owner);
    outbox.done_s.push_back(table.done_s[to_index(i)]);
    outbox.elements.push_back(problem.elements.empty() ? 0 : problem.elements[to_index(i)]);
  }
  return all;
}

/// Groups by a rule what is to be sent.
void send_by(Broadcasts (*rule)(const BroadcastProblem&), const PlacementProblem& problem,
             const Timetable& table, const std::vector<Outbox>& outboxes, Placement& placement) {
  placement.sent.clear(), placement.ends.clear();
  const Channel channel{table.computed_s, problem.communication_slowdown};
  for (const Outbox& outbox : outboxes) {
    const Broadcasts messages = rule({outbox.done_s, outbox.root, outbox.elements,
                                      std::cref(problem.seconds_of), table.free_s, channel});
    const auto before = static_cast<std::int32_t>(placement.sent.size());
    for (const std::int32_t m : messages.order)
      placement.sent.push_back(outbox.members[to_index(m)]);
    for (const std::int32_t end : messages.ends) placement.ends.push_back(before + end);
  }
}

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// Gives what has owners and an order its `sent` and `ends`, by the rule of factor_fusion.hpp that
/// ends first. Returns that end. Infinity, with nothing sent, if it is seen at once to end after
/// `limit_s`.
double send_soonest(const PlacementProblem& problem, Placement& placement,
                    double limit_s = kNoLimit) {
  const Timetable table = timetable_of(problem, placement);
  if (ends_after_s(problem, table, placement) > limit_s) return kNoLimit;
  const std::vector<Outbox> outboxes = outboxes_of(problem, table, placement);
  send_by(send_each, problem, table, outboxes, placement);
  double end_s = end_of_layers(problem, table, placement);
  if (!problem.seconds_of || placement.sent.empty()) return end_s;
  for (const auto rule : {send_what_is_done, send_each_root}) {
    std::vector<std::int32_t> sent = std::exchange(placement.sent, {}),
                              ends = std::exchange(placement.ends, {});
    send_by(rule, problem, table, outboxes, placement);
    const double fused_s = end_of_layers(problem, table, placement);
    if (is_sooner(fused_s, end_s))
      end_s = fused_s;
    else
      placement.sent = std::move(sent), placement.ends = std::move(ends);
  }
  return end_s;
}

/// Orders what has been given owners. A search asks for hundreds of placements of one problem, so
/// what does not depend on owners is found once.
class PlacementOrder {
 public:
  explicit PlacementOrder(const PlacementProblem& problem)
      : longest_first_(descending(problem.inverse_s)),
        place_(places_in(longest_first_)),
        as_they_arrive_(problem, longest_first_),
        at_once_(without_arrivals(problem), longest_first_) {}

  /// descending(problem.inverse_s).
  const std::vector<std::int32_t>& longest_first() const { return longest_first_; }
  /// `order`, `sent` and `ends`; returns when everything is through. Infinity, with nothing
  /// ordered, if every order is seen at once to end after `limit_s`.
  double find(Placement& placement, double limit_s = kNoLimit) const {
    const PlacementProblem& problem = as_they_arrive_.problem;
    double least_s = kNoLimit;
    Placement best;
    const auto try_order = [&](const ArrivalStages& arriving, Pace pace, bool behind_arrivals) {
      std::vector<std::int32_t> order = Work(arriving, place_, placement.owner, pace).order();
      Placement ordered{placement.owner, std::move(order), behind_arrivals, {}, {}};
      const double end_s = send_soonest(problem, ordered, std::min(limit_s, least_s));
      if (end_s < least_s) least_s = end_s, best = std::move(ordered);
    };
    try_order(at_once_, &Clocks::latest_s, true);
    if (!problem.after.empty())
      for (const Pace pace : {&Clocks::latest_s, &Clocks::earliest_s})
        try_order(as_they_arrive_, pace, false);
    if (least_s < kNoLimit) placement = std::move(best);
    return least_s;
  }

 private:
  std::vector<std::int32_t> longest_first_;
  std::vector<std::size_t> place_;  // of each inverse, in longest_first_
  ArrivalStages as_they_arrive_, at_once_;
};

/// Gives work to the least loaded rank, the lowest on ties. With work in descending order this is
/// longest processing time first (Graham 1969).
template <typename Load>
class LeastLoaded {
 public:
  explicit LeastLoaded(int ranks) {
    for (std::int32_t r = 0; r < ranks; ++r) heap_.push({Load{}, r});
  }
  /// Its load with this added, and the rank.
  std::pair<Load, std::int32_t> add(Load load) {
    auto [before, rank] = heap_.top();
    heap_.pop();
    heap_.push({before + load, rank});
    return {before + load, rank};
  }

 private:
  using Entry = std::pair<Load, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
};

/// The owners of the k longest do not depend on k, so they are found once for all cuts.
struct Cuts {
  std::vector<std::int32_t> owners;  // of inverses, the longest first
  /// [k] what the rank that works longest computes, if ranks wait for nothing: no end is sooner.
  std::vector<double> work_s;
};

Cuts cuts_of(const PlacementProblem& problem, const std::vector<std::int32_t>& longest_first) {
  Cuts cuts;
  LeastLoaded<double> ranks(problem.ranks);
  const double layers_s = problem.columns == 1  // with more, no rank makes all directions
                              ? std::accumulate(problem.layer_s.begin(), problem.layer_s.end(), 0.0)
                              : 0;
  double everywhere_s = std::accumulate(problem.inverse_s.begin(), problem.inverse_s.end(), 0.0);
  double most_s = 0;
  cuts.work_s.push_back(problem.start_s + everywhere_s + layers_s);
  for (const std::int32_t i : longest_first) {
    const auto [load_s, rank] = ranks.add(problem.inverse_s[to_index(i)]);
    cuts.owners.push_back(rank);
    everywhere_s -= problem.inverse_s[to_index(i)];
    most_s = std::max(most_s, load_s);
    cuts.work_s.push_back(problem.start_s + everywhere_s + most_s + layers_s);
  }
  return cuts;
}

std::vector<std::int32_t> nobody(const PlacementProblem& problem) {
  return std::vector<std::int32_t>(problem.inverse_s.size(), kEverywhere);
}

}  // namespace

Placement place_on(const PlacementProblem& problem, std::vector<std::int32_t> owner) {
  Placement placement{std::move(owner), {}, false, {}, {}};
  PlacementOrder(problem).find(placement);
  return placement;
}

// Cuts are looked at on a grid, then those between the grid's points next to the best. A cut is
// skipped if its computation alone ends later than the best so far.
Placement place_by_search(const PlacementProblem& problem) {
  const PlacementOrder ordering(problem);
  const Cuts cuts = cuts_of(problem, ordering.longest_first());
  double least_s = kNoLimit;
  Placement best;
  std::size_t best_cut = 0;
  const auto look_at = [&](std::size_t k) {
    if (is_sooner(least_s, cuts.work_s[k])) return;
    Placement placement{nobody(problem), {}, false, {}, {}};
    for (std::size_t i = 0; i < k; ++i)
      placement.owner[to_index(ordering.longest_first()[i])] = cuts.owners[i];
    const double end_s = ordering.find(placement, least_s);
    if (end_s < least_s || (end_s == least_s && k < best_cut))
      least_s = end_s, best = std::move(placement), best_cut = k;
  };
  const std::size_t last = problem.inverse_s.size();
  const std::size_t step = std::max<std::size_t>(1, last / kCutGrid);
  for (std::size_t k = 0; k <= last; k += step) look_at(k);
  const std::size_t near = best_cut;
  for (std::size_t k = near - std::min(near, step - 1); k <= std::min(last, near + step - 1); ++k)
    if (k != near) look_at(k);
  for (Placement& other :
       std::array{place_in_turn(problem), place_by_threshold(problem, kAuthorsTheta)})
    if (const double end_s = overlapped_s(problem, other); end_s < least_s)
      least_s = end_s, best = std::move(other);
  return best;
}

// The published rule, with its own order: ranks wait for all factors and go through the layers as
// they are numbered.
Placement place_by_threshold(const PlacementProblem& problem, std::int64_t theta) {
  std::vector<std::int32_t> owner = nobody(problem);
  LeastLoaded<std::int64_t> ranks(problem.ranks);
  for (const std::int32_t i : descending(problem.dims))
    if (problem.dims[to_index(i)] >= theta)
      owner[to_index(i)] = ranks.add(problem.dims[to_index(i)]).second;
  Placement placement{std::move(owner), {}, false, {}, {}};
  placement.order.resize(problem.dims.size());
  std::iota(placement.order.begin(), placement.order.end(), 0);
  placement.behind_arrivals = true;
  send_soonest(problem, placement);
  return placement;
}

Placement place_longest_first(const PlacementProblem& problem) {
  return place_on(problem, place_layers(problem.inverse_s, problem.ranks, 1));
}

Placement place_in_turn(const PlacementProblem& problem) {
  std::vector<std::int32_t> owner = nobody(problem);
  std::int32_t next = 0;
  for (const std::int32_t i : descending(problem.dims)) {
    owner[to_index(i)] = next;
    next = (next + 1) % problem.ranks;
  }
  return place_on(problem, std::move(owner));
}

Placement place_everywhere(const PlacementProblem& problem) {
  return place_on(problem, nobody(problem));
}

double overlapped_s(const PlacementProblem& problem, const Placement& placement) {
  return end_of_layers(problem, timetable_of(problem, placement), placement);
}

// Whole layers, the longest first, to the least loaded column and to the least loaded rank in it.
std::vector<std::int32_t> place_layers(const std::vector<double>& seconds, int ranks, int columns) {
  std::vector<std::int32_t> owner(seconds.size());
  LeastLoaded<double> by_column(columns);
  std::vector<LeastLoaded<double>> in_column(to_index(columns),
                                             LeastLoaded<double>(ranks / columns));
  for (const std::int32_t i : descending(seconds)) {
    const std::int32_t column = by_column.add(seconds[to_index(i)]).second;
    const std::int32_t row = in_column[to_index(column)].add(seconds[to_index(i)]).second;
    owner[to_index(i)] = row * columns + column;
  }
  return owner;
}

}  // namespace linerate::plan
