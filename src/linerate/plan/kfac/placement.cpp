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
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/factor_fusion.hpp"
#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {
namespace {

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

/// Looks at cuts and keeps the best placement. The owners of the k longest do not depend on k, so
/// they are found once for all. A cut is skipped if its computation alone ends later than the best
/// so far.
class CutSearch {
 public:
  explicit CutSearch(const PlacementProblem& problem)
      : problem_(problem), ordering_(problem), order_(ordering_.longest_first()) {
    LeastLoaded<double> ranks(problem.ranks);
    const double layers_s =
        problem.columns == 1  // with more, no rank makes all directions
            ? std::accumulate(problem.layer_s.begin(), problem.layer_s.end(), 0.0)
            : 0;
    double everywhere_s = std::accumulate(problem.inverse_s.begin(), problem.inverse_s.end(), 0.0);
    double most_s = 0;
    work_s_.push_back(problem.start_s + everywhere_s + layers_s);
    for (const std::int32_t i : order_) {
      const auto [load_s, rank] = ranks.add(problem.inverse_s[to_index(i)]);
      owners_.push_back(rank);
      everywhere_s -= problem.inverse_s[to_index(i)];
      most_s = std::max(most_s, load_s);
      work_s_.push_back(problem.start_s + everywhere_s + most_s + layers_s);
    }
  }

  /// Looks at the placement in which the k longest inverses have owners.
  void look_at(std::size_t k) {
    if (is_sooner(least_s_, work_s_[k])) return;
    Placement placement;
    placement.owner.assign(order_.size(), kEverywhere);
    for (std::size_t i = 0; i < k; ++i) placement.owner[to_index(order_[i])] = owners_[i];
    const double end_s = ordering_.find(placement, least_s_);
    if (end_s == least_s_ && k < best_cut_) best_cut_ = k, best_ = std::move(placement);
    if (keep(end_s, std::move(placement))) best_cut_ = k;
  }
  void look_at(Placement placement) {
    const double end_s = overlapped_s(problem_, placement);
    keep(end_s, std::move(placement));
  }

  std::size_t best_cut() const { return best_cut_; }
  Placement best() && { return std::move(best_); }

 private:
  bool keep(double end_s, Placement placement) {
    if (!(end_s < least_s_)) return false;
    least_s_ = end_s, best_ = std::move(placement);
    return true;
  }

  const PlacementProblem& problem_;
  PlacementOrder ordering_;
  const std::vector<std::int32_t>& order_;
  std::vector<std::int32_t> owners_;  // of those in order_
  /// [k] what the rank that works longest computes, if ranks wait for nothing: no end is sooner.
  std::vector<double> work_s_;
  double least_s_ = std::numeric_limits<double>::infinity();
  Placement best_;
  std::size_t best_cut_ = 0;
};

std::vector<std::int32_t> nobody(const PlacementProblem& problem) {
  return std::vector<std::int32_t>(problem.inverse_s.size(), kEverywhere);
}

}  // namespace

Placement place_on(const PlacementProblem& problem, std::vector<std::int32_t> owner) {
  Placement placement{std::move(owner), {}, false, {}, {}};
  PlacementOrder(problem).find(placement);
  return placement;
}

// Cuts are looked at on a grid, then those between the grid's points next to the best.
Placement place_by_search(const PlacementProblem& problem) {
  CutSearch search(problem);
  const std::size_t cuts = problem.inverse_s.size();
  const std::size_t step = std::max<std::size_t>(1, cuts / kCutGrid);
  for (std::size_t k = 0; k <= cuts; k += step) search.look_at(k);
  const std::size_t near = search.best_cut();
  for (std::size_t k = near - std::min(near, step - 1); k <= std::min(cuts, near + step - 1); ++k)
    if (k != near) search.look_at(k);
  search.look_at(place_in_turn(problem));
  search.look_at(place_by_threshold(problem, kAuthorsTheta));
  return std::move(search).best();
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
  send(problem, placement);
  return placement;
}

Placement place_longest_first(const PlacementProblem& problem) {
  std::vector<std::int32_t> owner = nobody(problem);
  LeastLoaded<double> ranks(problem.ranks);
  for (const std::int32_t i : descending(problem.inverse_s))
    owner[to_index(i)] = ranks.add(problem.inverse_s[to_index(i)]).second;
  return place_on(problem, std::move(owner));
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
std::vector<std::int32_t> place_layers(std::span<const double> seconds, int ranks, int columns) {
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

namespace {

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

// The inverses in the order of their arrivals, the longest first among those of one arrival.
std::vector<std::int32_t> by_arrival(const PlacementProblem& problem,
                                     std::vector<std::int32_t> longest_first) {
  if (!problem.after.empty())
    std::stable_sort(longest_first.begin(), longest_first.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       return arrival_of(problem, a) < arrival_of(problem, b);
                     });
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

}  // namespace

// Tries the three rules of factor_fusion.hpp and keeps the one that ends first.
double send(const PlacementProblem& problem, Placement& placement, double limit_s) {
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

ArrivalStages::ArrivalStages(const PlacementProblem& of,
                             const std::vector<std::int32_t>& longest_first)
    : problem(of), coming(by_arrival(of, longest_first)), stages(stages_of_arrival(of)) {}

PlacementOrder::PlacementOrder(const PlacementProblem& problem)
    : longest_first_(descending(problem.inverse_s)),
      place_(places_in(longest_first_)),
      as_they_arrive_(problem, longest_first_),
      at_once_(without_arrivals(problem), longest_first_) {}

double PlacementOrder::find(Placement& placement, double limit_s) const {
  const PlacementProblem& problem = as_they_arrive_.problem;
  double least_s = kNoLimit;
  Placement best;
  const auto try_order = [&](const ArrivalStages& arriving, Pace pace, bool behind_arrivals) {
    std::vector<std::int32_t> order = Work(arriving, place_, placement.owner, pace).order();
    Placement ordered{placement.owner, std::move(order), behind_arrivals, {}, {}};
    const double end_s = send(problem, ordered, std::min(limit_s, least_s));
    if (end_s < least_s) least_s = end_s, best = std::move(ordered);
  };
  try_order(at_once_, &Clocks::latest_s, true);
  if (!problem.after.empty())
    for (const Pace pace : {&Clocks::latest_s, &Clocks::earliest_s})
      try_order(as_they_arrive_, pace, false);
  if (least_s < kNoLimit) placement = std::move(best);
  return least_s;
}

}  // namespace linerate::plan
