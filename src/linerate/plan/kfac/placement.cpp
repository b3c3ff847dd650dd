#include "linerate/plan/kfac/placement.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace linerate::plan {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Indices, largest value first, ties by index.
template <typename Value>
std::vector<std::int32_t> descending(std::span<const Value> values) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return values[at(a)] > values[at(b)]; });
  return order;
}

/// The least loaded rank, the lowest on ties.
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

/// Those without an owner, in this order.
std::vector<std::int32_t> without_owner(const Placement& placement,
                                        const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> rest;
  std::copy_if(order.begin(), order.end(), std::back_inserter(rest),
               [&](std::int32_t i) { return placement.owner[at(i)] == kEverywhere; });
  return rest;
}

/// When each is inverted, ranks working in `order`.
std::vector<double> done_by(const PlacementProblem& problem, const Placement& placement) {
  std::vector<double> done_s(problem.inverse_s.size()), own_s(at(problem.ranks));
  double everywhere_s = 0;
  for (const std::int32_t i : placement.order) {
    const std::int32_t rank = placement.owner[at(i)];
    double& spent_s = rank == kEverywhere ? everywhere_s : own_s[at(rank)];
    spent_s += problem.inverse_s[at(i)];
    done_s[at(i)] = rank == kEverywhere ? everywhere_s : everywhere_s + spent_s;
  }
  return done_s;
}

/// `sent` of what has been given owners and an order.
void send_in_order(const PlacementProblem& problem, Placement& placement) {
  std::copy_if(placement.order.begin(), placement.order.end(), std::back_inserter(placement.sent),
               [&](std::int32_t i) { return placement.owner[at(i)] != kEverywhere; });
  const std::vector<double> done_s = done_by(problem, placement);
  std::stable_sort(placement.sent.begin(), placement.sent.end(),
                   [&](std::int32_t a, std::int32_t b) { return done_s[at(a)] < done_s[at(b)]; });
}

/// `order` and `sent` of what has been given owners.
void put_in_order(const PlacementProblem& problem, Placement& placement) {
  const std::vector<std::int32_t> longest_first = descending(problem.inverse_s);
  std::copy_if(longest_first.begin(), longest_first.end(), std::back_inserter(placement.order),
               [&](std::int32_t i) { return placement.owner[at(i)] != kEverywhere; });
  const std::vector<std::int32_t> rest = without_owner(placement, longest_first);
  placement.order.insert(placement.order.end(), rest.begin(), rest.end());
  send_in_order(problem, placement);
}

std::vector<std::int32_t> nobody(const PlacementProblem& problem) {
  return std::vector<std::int32_t>(problem.inverse_s.size(), kEverywhere);
}

/// An inverse that its owner has done.
struct Sent {
  std::int32_t index;
  double done_s;
};

/// When every layer is done on the rank that inverts longest: until `inverted_s`. `sent` by the
/// time they are done.
double end_of_layers(const PlacementProblem& problem, double inverted_s,
                     const std::vector<Sent>& sent) {
  std::vector<int> missing(problem.layer_s.size());
  const auto layer_of = [&](const Sent& s) { return at(problem.layer[at(s.index)]); };
  if (!problem.layer.empty())
    for (const Sent& s : sent) ++missing[layer_of(s)];
  double computed_s = inverted_s;
  for (std::size_t l = 0; l < missing.size(); ++l)
    if (missing[l] == 0) computed_s += problem.layer_s[l];
  const Channel channel{computed_s, problem.communication_slowdown};
  double free_s = 0;
  for (const Sent& s : sent) {
    free_s = channel.end_of(std::max(free_s, s.done_s), problem.broadcast_s[at(s.index)]);
    computed_s = std::max(computed_s, free_s);
    if (!problem.layer.empty() && --missing[layer_of(s)] == 0)
      computed_s += problem.layer_s[layer_of(s)];
  }
  return computed_s;
}

std::vector<double> loads_s(const PlacementProblem& problem, const Placement& placement) {
  std::vector<double> load(at(problem.ranks));
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    if (placement.owner[i] != kEverywhere) load[at(placement.owner[i])] += problem.inverse_s[i];
  return load;
}

double everywhere_s(const PlacementProblem& problem, const Placement& placement) {
  double sum = 0;
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    if (placement.owner[i] == kEverywhere) sum += problem.inverse_s[i];
  return sum;
}

/// Owners of the longest k, for every k in turn: those of k + 1 are those of k and one more.
class CutSearch {
 public:
  explicit CutSearch(const PlacementProblem& problem)
      : problem_(problem),
        order_(descending(problem.inverse_s)),
        ranks_(problem.ranks),
        rest_s_(std::accumulate(problem.inverse_s.begin(), problem.inverse_s.end(), 0.0)) {}

  std::vector<std::int32_t> owners() {
    std::vector<std::int32_t> all;
    double least_s = now_s();
    std::size_t best = 0;
    for (std::size_t k = 1; k <= order_.size(); ++k) {
      all.push_back(add(order_[k - 1]));
      if (const double seconds = now_s(); seconds < least_s) least_s = seconds, best = k;
    }
    std::vector<std::int32_t> owner = nobody(problem_);
    for (std::size_t k = 0; k < best; ++k) owner[at(order_[k])] = all[k];
    return owner;
  }

 private:
  std::int32_t add(std::int32_t i) {
    const double seconds = problem_.inverse_s[at(i)];
    const auto [done_s, rank] = ranks_.add(seconds);
    rest_s_ = std::max(0.0, rest_s_ - seconds);
    most_s_ = std::max(most_s_, done_s);
    const auto behind =
        std::upper_bound(sent_.begin(), sent_.end(), done_s,
                         [](double done, const Sent& s) { return done < s.done_s; });
    sent_.insert(behind, {i, done_s});
    return rank;
  }
  double now_s() const { return end_of_layers(problem_, most_s_ + rest_s_, sent_); }

  const PlacementProblem& problem_;
  std::vector<std::int32_t> order_;
  LeastLoaded<double> ranks_;
  std::vector<Sent> sent_;
  double rest_s_, most_s_ = 0;
};

}  // namespace

Placement place_on(const PlacementProblem& problem, std::vector<std::int32_t> owner) {
  Placement placement{std::move(owner), {}, {}};
  put_in_order(problem, placement);
  return placement;
}

Placement place_by_search(const PlacementProblem& problem) {
  return place_on(problem, CutSearch(problem).owners());
}

Placement place_by_threshold(const PlacementProblem& problem, std::int64_t theta) {
  std::vector<std::int32_t> owner = nobody(problem);
  LeastLoaded<std::int64_t> ranks(problem.ranks);
  for (const std::int32_t i : descending(problem.dims))
    if (problem.dims[at(i)] >= theta) owner[at(i)] = ranks.add(problem.dims[at(i)]).second;
  Placement placement{std::move(owner), {}, {}};
  placement.order.resize(problem.dims.size());
  std::iota(placement.order.begin(), placement.order.end(), 0);
  send_in_order(problem, placement);
  return placement;
}

Placement place_longest_first(const PlacementProblem& problem) {
  std::vector<std::int32_t> owner = nobody(problem);
  LeastLoaded<double> ranks(problem.ranks);
  for (const std::int32_t i : descending(problem.inverse_s))
    owner[at(i)] = ranks.add(problem.inverse_s[at(i)]).second;
  return place_on(problem, std::move(owner));
}

Placement place_in_turn(const PlacementProblem& problem) {
  std::vector<std::int32_t> owner = nobody(problem);
  std::int32_t next = 0;
  for (const std::int32_t i : descending(problem.dims)) {
    owner[at(i)] = next;
    next = (next + 1) % problem.ranks;
  }
  return place_on(problem, std::move(owner));
}

Placement place_everywhere(const PlacementProblem& problem) {
  return place_on(problem, nobody(problem));
}

double overlapped_s(const PlacementProblem& problem, const Placement& placement) {
  const std::vector<double> done_s = done_by(problem, placement);
  std::vector<Sent> sent;
  for (const std::int32_t i : placement.sent) sent.push_back({i, done_s[at(i)]});
  const double inverted_s = largest_load_s(problem, placement) + everywhere_s(problem, placement);
  return end_of_layers(problem, inverted_s, sent);
}

double serial_s(const PlacementProblem& problem, const Placement& placement) {
  double seconds = largest_load_s(problem, placement) + everywhere_s(problem, placement);
  for (const std::int32_t i : placement.sent) seconds += problem.broadcast_s[at(i)];
  return seconds;
}

double largest_load_s(const PlacementProblem& problem, const Placement& placement) {
  const std::vector<double> load = loads_s(problem, placement);
  return *std::max_element(load.begin(), load.end());
}

std::int64_t largest_load_dims(const PlacementProblem& problem, const Placement& placement) {
  std::vector<std::int64_t> load(at(problem.ranks));
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    if (placement.owner[i] != kEverywhere) load[at(placement.owner[i])] += problem.dims[i];
  return *std::max_element(load.begin(), load.end());
}

std::vector<std::int32_t> place_layers(std::span<const double> seconds, int ranks, int columns) {
  std::vector<std::int32_t> owner(seconds.size());
  LeastLoaded<double> by_column(columns);
  std::vector<LeastLoaded<double>> in_column(at(columns), LeastLoaded<double>(ranks / columns));
  for (const std::int32_t i : descending(seconds)) {
    const std::int32_t column = by_column.add(seconds[at(i)]).second;
    const std::int32_t row = in_column[at(column)].add(seconds[at(i)]).second;
    owner[at(i)] = row * columns + column;
  }
  return owner;
}

}  // namespace linerate::plan
