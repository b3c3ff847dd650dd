#include "linerate/plan/kfac/placement_order.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/broadcast_fusion.hpp"
#include "linerate/plan/kfac/rank_clocks.hpp"
#include "linerate/plan/kfac/timetable.hpp"

namespace linerate::plan {
namespace {

/// The clock that says how much of what every rank does comes before an arrival.
using Pace = double (Clocks::*)();

/// Orders work as factors arrive: what begins before an arrival comes before it.
class Work {
 public:
  Work(const PlacementProblem& problem, std::span<const std::int32_t> longest_first,
       const std::vector<std::int32_t>& owner, Pace pace)
      : problem_(problem),
        owner_(owner),
        pace_(pace),
        arrivals_(problem),
        clocks_(problem),
        coming_(longest_first.begin(), longest_first.end()),
        place_(longest_first.size()) {
    for (std::size_t k = 0; k < longest_first.size(); ++k) place_[to_index(longest_first[k])] = k;
    if (problem.after.empty()) return;
    std::stable_sort(coming_.begin(), coming_.end(), [&](std::int32_t a, std::int32_t b) {
      return arrival_of(problem, a) < arrival_of(problem, b);
    });
  }

  std::vector<std::int32_t> order() {
    const std::vector<std::int32_t> stages = stages_of_arrival();
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (stages[s] >= 0) clocks_.wait_until(arrivals_.through_s(stages[s], clocks_.latest_s()));
      admit(stages[s]);
      const bool last = s + 1 == stages.size();
      fill(last ? std::numeric_limits<double>::infinity() : due_s(stages[s + 1]));
    }
    return std::move(order_);
  }

 private:
  /// Ascending; what is there when ranks are free is one stage.
  std::vector<std::int32_t> stages_of_arrival() const {
    std::vector<std::int32_t> stages = {-1};
    stages.insert(stages.end(), problem_.after.begin(), problem_.after.end());
    std::sort(stages.begin(), stages.end());
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    Arrivals arrivals(problem_);
    const auto late = std::find_if(stages.begin(), stages.end(), [&](std::int32_t stage) {
      return arrivals.through_s(stage, problem_.start_s) > problem_.start_s;
    });
    if (late > stages.begin() + 1) stages.erase(stages.begin(), late - 1);
    return stages;
  }

  /// When the next arrival is due, as long as ranks have work.
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
    std::sort(waiting.begin() + begin, waiting.end(), is_longer);
    std::inplace_merge(waiting.begin(), waiting.begin() + begin, waiting.end(), is_longer);
  }

  void fill(double until_s) {
    take(owned_, [&](std::int32_t i) { return clocks_.of(owner_[to_index(i)]) < until_s; });
    take(everywhere_, [&](std::int32_t) { return (clocks_.*pace_)() < until_s; });
  }

  template <typename Begins>
  void take(std::vector<std::int32_t>& waiting, Begins begins) {
    std::erase_if(waiting, [&](std::int32_t i) {
      if (!begins(i)) return false;
      clocks_.work(owner_[to_index(i)], problem_.inverse_s[to_index(i)]);
      order_.push_back(i);
      return true;
    });
  }

  const PlacementProblem& problem_;
  const std::vector<std::int32_t>& owner_;
  Pace pace_;
  Arrivals arrivals_;
  Clocks clocks_;
  std::vector<std::int32_t> coming_;              // as they arrive
  std::vector<std::size_t> place_;                // in longest_first
  std::size_t admitted_ = 0;                      // of coming_
  std::vector<std::int32_t> owned_, everywhere_;  // waiting, the longest first
  std::vector<std::int32_t> order_;
};

/// Groups by a rule what has been given owners and an order.
void send_by(Broadcasts (*rule)(const BroadcastProblem&), const PlacementProblem& problem,
             const Timetable& table, Placement& placement) {
  placement.sent.clear(), placement.ends.clear();
  std::vector<std::int32_t> owned;
  std::copy_if(placement.order.begin(), placement.order.end(), std::back_inserter(owned),
               [&](std::int32_t i) { return placement.owner[to_index(i)] != kEverywhere; });
  for (int column = 0; column < problem.columns; ++column) {
    std::vector<std::int32_t> members, root;
    std::vector<double> done_s;
    std::vector<std::int64_t> elements;
    for (const std::int32_t i : owned) {
      if (placement.owner[to_index(i)] % problem.columns != column) continue;
      members.push_back(i), root.push_back(placement.owner[to_index(i)]);
      done_s.push_back(table.done_s[to_index(i)]);
      elements.push_back(problem.elements.empty() ? 0 : problem.elements[to_index(i)]);
    }
    const Channel channel{table.computed_s, problem.communication_slowdown};
    const Broadcasts messages =
        rule({done_s, root, elements, problem.seconds_of, table.free_s, channel});
    const auto before = static_cast<std::int32_t>(placement.sent.size());
    for (const std::int32_t m : messages.order) placement.sent.push_back(members[to_index(m)]);
    for (const std::int32_t end : messages.ends) placement.ends.push_back(before + end);
  }
}

}  // namespace

double send(const PlacementProblem& problem, Placement& placement, double limit_s) {
  const Timetable table = timetable_of(problem, placement);
  if (ends_after_s(problem, table, placement) > limit_s) return kNoLimit;
  send_by(send_each, problem, table, placement);
  double end_s = end_of_layers(problem, table, placement);
  if (!problem.seconds_of || placement.sent.empty()) return end_s;
  for (const auto rule : {send_what_is_done, send_each_root}) {
    Placement fused = placement;
    send_by(rule, problem, table, fused);
    const double fused_s = end_of_layers(problem, table, fused);
    if (is_sooner(fused_s, end_s)) end_s = fused_s, placement = std::move(fused);
  }
  return end_s;
}

double put_in_order(const PlacementProblem& problem, std::span<const std::int32_t> longest_first,
                    Placement& placement, double limit_s) {
  double least_s = kNoLimit;
  Placement best;
  const auto try_order = [&](std::vector<std::int32_t> order, bool behind_arrivals) {
    Placement ordered{placement.owner, std::move(order), behind_arrivals, {}, {}};
    const double end_s = send(problem, ordered, std::min(limit_s, least_s));
    if (end_s < least_s) least_s = end_s, best = std::move(ordered);
  };
  PlacementProblem at_once = problem;
  at_once.after = {};
  try_order(Work(at_once, longest_first, placement.owner, &Clocks::latest_s).order(), true);
  if (!problem.after.empty())
    for (const Pace pace : {&Clocks::latest_s, &Clocks::earliest_s})
      try_order(Work(problem, longest_first, placement.owner, pace).order(), false);
  if (least_s < kNoLimit) placement = std::move(best);
  return least_s;
}

}  // namespace linerate::plan
