#include "linerate/plan/kfac/placement.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "linerate/plan/kfac/broadcast_fusion.hpp"

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

/// The channel up to the first broadcast.
class Arrivals {
 public:
  explicit Arrivals(const PlacementProblem& problem) : problem_(&problem) {}

  /// When a transfer is through, ranks computing until `busy_s`. Those before it are, too.
  double through_s(std::int32_t transfer, double busy_s) {
    const Channel channel{busy_s, problem_->communication_slowdown};
    for (; next_ <= transfer; ++next_) {
      const Transfer& t = problem_->transfers[at(next_)];
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

/// Ranks at work: what all of them do moves every clock.
class Clocks {
 public:
  explicit Clocks(const PlacementProblem& problem)
      : everybody_s_(problem.start_s), own_s_(at(problem.ranks)) {}

  /// Returns when the owner, or every rank, is done.
  double work(std::int32_t owner, double seconds) {
    if (owner == kEverywhere) return (everybody_s_ += seconds) + most_s_;
    double& own_s = own_s_[at(owner)];
    own_s += seconds;
    most_s_ = std::max(most_s_, own_s);
    return everybody_s_ + own_s;
  }
  void wait_until(double at_s) {
    for (double& own_s : own_s_) own_s = std::max(own_s, at_s - everybody_s_);
    most_s_ = *std::max_element(own_s_.begin(), own_s_.end());
  }
  double of(std::int32_t rank) const { return everybody_s_ + own_s_[at(rank)]; }
  double latest_s() const { return everybody_s_ + most_s_; }
  double earliest_s() const {
    return everybody_s_ + *std::min_element(own_s_.begin(), own_s_.end());
  }

 private:
  double everybody_s_, most_s_ = 0;
  std::vector<double> own_s_;
};

std::int32_t arrival_of(const PlacementProblem& problem, std::int32_t i) {
  return problem.after.empty() ? -1 : problem.after[at(i)];
}

/// The last that brings a factor; negative: all are there. Gradients may follow it.
std::int32_t last_arrival(const PlacementProblem& problem) {
  return problem.after.empty() ? -1 : *std::max_element(problem.after.begin(), problem.after.end());
}

/// By layer, how many messages of one inverse it would wait for.
std::vector<int> messages_missing(const PlacementProblem& problem, const Placement& placement) {
  std::vector<int> missing(problem.layer_s.size());
  if (problem.layer.empty()) return missing;
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    if (placement.owner[i] != kEverywhere) ++missing[at(problem.layer[i])];
  return missing;
}

/// Layers as their gradients arrive, the last one first.
std::vector<std::int32_t> layers_by_arrival(const PlacementProblem& problem) {
  std::vector<std::int32_t> order(problem.layer_s.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (!problem.gradient_after.empty())
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) {
      return problem.gradient_after[at(x)] < problem.gradient_after[at(y)];
    });
  return order;
}

/// When each is inverted, ranks working in `order`, when the last of them is and what needs no
/// message is preconditioned, and when the channel is free for broadcasts.
struct Timetable {
  std::vector<double> done_s;
  double computed_s = 0, free_s = 0;
};

void precondition_what_misses_nothing(const PlacementProblem& problem, const Placement& placement,
                                      Arrivals& arrivals, Timetable& table) {
  const std::vector<int> missing = messages_missing(problem, placement);
  for (const std::int32_t l : layers_by_arrival(problem)) {
    if (missing[at(l)] > 0) continue;
    const std::int32_t gradient =
        problem.gradient_after.empty() ? -1 : problem.gradient_after[at(l)];
    if (arrivals.brings(gradient))
      table.computed_s = std::max(table.computed_s, arrivals.through_s(gradient, table.computed_s));
    table.computed_s += problem.layer_s[at(l)];
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
    table.done_s[at(i)] = clocks.work(placement.owner[at(i)], problem.inverse_s[at(i)]);
  }
  table.computed_s = clocks.latest_s();
  precondition_what_misses_nothing(problem, placement, arrivals, table);
  table.free_s = arrivals.last_s(table.computed_s);
  return table;
}

/// When every layer is done on the rank that inverts longest, and every gradient there.
double end_of_layers(const PlacementProblem& problem, const Timetable& table,
                     const Placement& placement) {
  std::vector<int> missing = messages_missing(problem, placement);
  const auto layer_of = [&](std::int32_t i) { return at(problem.layer[at(i)]); };
  const Channel channel{table.computed_s, problem.communication_slowdown};
  // A rank is in one column.
  std::vector<double> free_s(at(problem.columns), table.free_s),
      ends_s(free_s.size(), std::max(table.computed_s, table.free_s));
  auto member = placement.sent.begin();
  for (const std::int32_t end : placement.ends) {
    const auto behind = placement.sent.begin() + end;
    const auto column = at(placement.owner[at(*member)] % problem.columns);
    double done_s = free_s[column];
    std::int64_t elements = 0;
    for (auto m = member; m != behind; ++m) {
      done_s = std::max(done_s, table.done_s[at(*m)]);
      elements += problem.elements.empty() ? 0 : problem.elements[at(*m)];
    }
    const double seconds = problem.seconds_of ? problem.seconds_of(elements, behind - member)
                                              : problem.broadcast_s[at(*member)];
    free_s[column] = channel.end_of(done_s, seconds);
    ends_s[column] = std::max(ends_s[column], free_s[column]);
    for (; member != behind; ++member)
      if (!problem.layer.empty() && --missing[layer_of(*member)] == 0)
        ends_s[column] += problem.layer_s[layer_of(*member)];
  }
  return *std::max_element(ends_s.begin(), ends_s.end());
}

// ---- the order of work ----

/// Whose clock says how much of what everybody does comes in front of an arrival.
using Pace = double (Clocks::*)() const;

/// As factors arrive. In front of an arrival comes what begins before it.
class Work {
 public:
  Work(const PlacementProblem& problem, const std::vector<std::int32_t>& owner, Pace pace)
      : problem_(problem), owner_(owner), pace_(pace), arrivals_(problem), clocks_(problem) {
    for (const std::int32_t i : descending(problem.inverse_s))
      (owner[at(i)] == kEverywhere ? everywhere_ : owned_).push_back(i);
  }

  std::vector<std::int32_t> order() {
    const std::vector<std::int32_t> stages = stages_of_arrival();
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (stages[s] >= 0) clocks_.wait_until(arrivals_.through_s(stages[s], clocks_.latest_s()));
      const bool last = s + 1 == stages.size();
      fill(stages[s],
           last ? std::numeric_limits<double>::infinity() : due_s(stages[s + 1], stages[s]));
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
  double due_s(std::int32_t next, std::int32_t arrived) {
    double left_s = 0;
    for (const std::int32_t i : everywhere_)
      if (arrival_of(problem_, i) <= arrived) left_s += problem_.inverse_s[at(i)];
    return Arrivals(arrivals_).through_s(next, clocks_.latest_s() + left_s);
  }

  void fill(std::int32_t arrived, double until_s) {
    take(owned_, arrived, [&](std::int32_t i) { return clocks_.of(owner_[at(i)]) < until_s; });
    take(everywhere_, arrived, [&](std::int32_t) { return (clocks_.*pace_)() < until_s; });
  }

  template <typename Begins>
  void take(std::vector<std::int32_t>& waiting, std::int32_t arrived, Begins begins) {
    std::erase_if(waiting, [&](std::int32_t i) {
      if (arrival_of(problem_, i) > arrived || !begins(i)) return false;
      clocks_.work(owner_[at(i)], problem_.inverse_s[at(i)]);
      order_.push_back(i);
      return true;
    });
  }

  const PlacementProblem& problem_;
  const std::vector<std::int32_t>& owner_;
  Pace pace_;
  Arrivals arrivals_;
  Clocks clocks_;
  std::vector<std::int32_t> owned_, everywhere_, order_;
};

// ---- messages ----

/// Of what has been given owners and an order, by a rule.
void send_by(Broadcasts (*rule)(const BroadcastProblem&), const PlacementProblem& problem,
             const Timetable& table, Placement& placement) {
  placement.sent.clear(), placement.ends.clear();
  std::vector<std::int32_t> owned;
  std::copy_if(placement.order.begin(), placement.order.end(), std::back_inserter(owned),
               [&](std::int32_t i) { return placement.owner[at(i)] != kEverywhere; });
  for (int column = 0; column < problem.columns; ++column) {
    std::vector<std::int32_t> members, root;
    std::vector<double> done_s;
    std::vector<std::int64_t> elements;
    for (const std::int32_t i : owned) {
      if (placement.owner[at(i)] % problem.columns != column) continue;
      members.push_back(i), root.push_back(placement.owner[at(i)]);
      done_s.push_back(table.done_s[at(i)]);
      elements.push_back(problem.elements.empty() ? 0 : problem.elements[at(i)]);
    }
    const Channel channel{table.computed_s, problem.communication_slowdown};
    const Broadcasts messages =
        rule({done_s, root, elements, problem.seconds_of, table.free_s, channel});
    const auto before = static_cast<std::int32_t>(placement.sent.size());
    for (const std::int32_t m : messages.order) placement.sent.push_back(members[at(m)]);
    for (const std::int32_t end : messages.ends) placement.ends.push_back(before + end);
  }
}

/// `sent` and `ends`, by what ends first; returns that end.
double send(const PlacementProblem& problem, Placement& placement) {
  const Timetable table = timetable_of(problem, placement);
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

/// `order`, `sent` and `ends` of what has been given owners; returns when everything is through.
double put_in_order(const PlacementProblem& problem, Placement& placement) {
  double least_s = std::numeric_limits<double>::infinity();
  Placement best;
  const auto try_order = [&](std::vector<std::int32_t> order, bool behind_arrivals) {
    Placement ordered{placement.owner, std::move(order), behind_arrivals, {}, {}};
    const double end_s = send(problem, ordered);
    if (end_s < least_s) least_s = end_s, best = std::move(ordered);
  };
  PlacementProblem at_once = problem;
  at_once.after = {};
  try_order(Work(at_once, placement.owner, &Clocks::latest_s).order(), true);
  if (!problem.after.empty())
    for (const Pace pace : {&Clocks::latest_s, &Clocks::earliest_s})
      try_order(Work(problem, placement.owner, pace).order(), false);
  placement = std::move(best);
  return least_s;
}

/// The best of what was looked at.
class CutSearch {
 public:
  explicit CutSearch(const PlacementProblem& problem)
      : problem_(problem), order_(descending(problem.inverse_s)) {
    LeastLoaded<double> ranks(problem.ranks);
    for (const std::int32_t i : order_)
      owners_.push_back(ranks.add(problem.inverse_s[at(i)]).second);
  }

  /// The k that take longest have owners: those of k + 1 are those of k and one more.
  void look_at(std::size_t k) {
    Placement placement;
    placement.owner.assign(order_.size(), kEverywhere);
    for (std::size_t i = 0; i < k; ++i) placement.owner[at(order_[i])] = owners_[i];
    const double end_s = put_in_order(problem_, placement);
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
  std::vector<std::int32_t> order_, owners_;
  double least_s_ = std::numeric_limits<double>::infinity();
  Placement best_;
  std::size_t best_cut_ = 0;
};

std::vector<std::int32_t> nobody(const PlacementProblem& problem) {
  return std::vector<std::int32_t>(problem.inverse_s.size(), kEverywhere);
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

}  // namespace

Placement place_on(const PlacementProblem& problem, std::vector<std::int32_t> owner) {
  Placement placement{std::move(owner), {}, false, {}, {}};
  put_in_order(problem, placement);
  return placement;
}

Placement place_by_search(const PlacementProblem& problem) {
  CutSearch search(problem);
  constexpr std::size_t kGrid = 64;
  const std::size_t cuts = problem.inverse_s.size();
  const std::size_t step = std::max<std::size_t>(1, cuts / kGrid);
  for (std::size_t k = 0; k <= cuts; k += step) search.look_at(k);
  const std::size_t near = search.best_cut();
  for (std::size_t k = near - std::min(near, step - 1); k <= std::min(cuts, near + step - 1); ++k)
    if (k != near) search.look_at(k);
  search.look_at(place_in_turn(problem));
  search.look_at(place_by_threshold(problem, kAuthorsTheta));
  return std::move(search).best();
}

Placement place_by_threshold(const PlacementProblem& problem, std::int64_t theta) {
  std::vector<std::int32_t> owner = nobody(problem);
  LeastLoaded<std::int64_t> ranks(problem.ranks);
  for (const std::int32_t i : descending(problem.dims))
    if (problem.dims[at(i)] >= theta) owner[at(i)] = ranks.add(problem.dims[at(i)]).second;
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
  return end_of_layers(problem, timetable_of(problem, placement), placement);
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
