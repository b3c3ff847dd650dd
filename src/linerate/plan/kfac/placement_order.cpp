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
#include "linerate/plan/kfac/placement_order.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/broadcast_fusion.hpp"
#include "linerate/plan/kfac/descending.hpp"
#include "linerate/plan/kfac/rank_clocks.hpp"
#include "linerate/plan/kfac/timetable.hpp"

namespace linerate::plan {
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

// Tries the three rules of broadcast_fusion.hpp and keeps the one that ends first.
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
