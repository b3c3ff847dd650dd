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
#include "linerate/plan/kfac/broadcast_fusion.hpp"
#include "linerate/plan/kfac/descending.hpp"
#include "linerate/plan/kfac/placement_order.hpp"
#include "linerate/plan/kfac/timetable.hpp"

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

// Cuts are looked at on a grid, a coarse one first: a good end found early lets most others be
// skipped. Then those between the grid's points next to the best are looked at.
Placement place_by_cut(const PlacementProblem& problem, std::size_t grid) {
  CutSearch search(problem);
  const std::size_t cuts = problem.inverse_s.size();
  const std::size_t step = std::max<std::size_t>(1, cuts / grid);
  // Some first: the others often are seen to be later.
  constexpr std::size_t kSome = 8;
  for (std::size_t k = 0; k <= cuts; k += kSome * step) search.look_at(k);
  for (std::size_t k = 0; k <= cuts; k += step)
    if (k % (kSome * step) != 0) search.look_at(k);
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

}  // namespace linerate::plan
