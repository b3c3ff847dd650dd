// Finds the ranks that may be simulated as one. Two ranks are alike if they have the same speed and
// delay and are in the same part of every group that the graph uses. Then they do the same tasks at
// the same times, in every simulation.
//
// An example: 64 ranks in 8 nodes, one rank of them slow. A Plan with an all-reduce of everybody
// has two classes, the slow rank and the rest. A Plan that also reduces inside nodes has nine: one
// a node, and in the slow rank's node the slow rank by itself. The simulation costs nine ranks and
// not 64.
#include "linerate/sim/rank_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>

#include "linerate/core/error.hpp"
#include "linerate/cost/collective_times.hpp"

namespace linerate::sim {
namespace {

// The groups that tasks of the graph name.
std::vector<bool> used_groups(const doc::Plan& plan, const doc::TaskGraph& graph) {
  std::vector<bool> used(plan.groups.size(), false);
  if (used.size() == 1) return {true};
  for (const doc::Task& task : graph.tasks) used[to_index(task.group)] = true;
  return used;
}

// Which parts each rank is in, all used groups' parts numbered through. Sparse: thousands of groups
// of one rank each must not cost ranks times groups.
using PartsOfRank = std::vector<std::vector<std::int32_t>>;

PartsOfRank parts_of_ranks(const doc::Plan& plan, const std::vector<bool>& used) {
  PartsOfRank parts(to_index(plan.ranks));
  std::int32_t number = 0;
  for (std::size_t g = 0; g < used.size(); ++g) {
    if (!used[g]) continue;
    for (const auto& part : plan.groups[g].parts) {
      for (const std::int32_t rank : part) {
        if (rank < 0 || rank >= plan.ranks)
          throw InputError(plan.groups[g].name,
                           fmt::format("the group names rank {} of {}", rank, plan.ranks));
        parts[to_index(rank)].push_back(number);
      }
      ++number;
    }
  }
  return parts;
}

// Gives every rank its class. The key of a class is speed, delay and the parts; classes are
// numbered in the order of their lowest ranks.
void number_classes(const doc::Plan& plan, const doc::Cluster& cluster,
                    const std::vector<bool>& used, RankClasses& out) {
  const auto ranks = to_index(plan.ranks);
  std::vector<RankClass> speeds(ranks);
  for (const doc::RankSpeed& speed : cluster.rank_speeds)
    if (speed.rank >= 0 && speed.rank < plan.ranks)
      speeds[to_index(speed.rank)] = {speed.compute_factor, speed.delay_s, 0};
  PartsOfRank parts = parts_of_ranks(plan, used);
  std::map<std::tuple<double, double, std::vector<std::int32_t>>, std::int32_t> known;
  for (std::size_t r = 0; r < ranks; ++r) {
    RankClass speed = speeds[r];
    speed.first_rank = static_cast<std::int32_t>(r);
    const auto [entry, is_new] =
        known.try_emplace({speed.compute_factor, speed.delay_s, std::move(parts[r])},
                          static_cast<std::int32_t>(out.classes.size()));
    if (is_new) out.classes.push_back(speed);
    out.class_of.push_back(entry->second);
  }
  if (out.classes.size() == 1) out.class_of.clear();
}

// The classes of a part: a class has all of its ranks in it, so its lowest stands for it.
std::vector<std::int32_t> classes_in(const std::vector<std::int32_t>& part,
                                     const RankClasses& classes) {
  std::vector<std::int32_t> found;
  for (const std::int32_t rank : part) {
    const std::int32_t c = classes.of_rank(rank);
    if (classes.classes[to_index(c)].first_rank == rank) found.push_back(c);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void fill_members(const doc::Plan& plan, const std::vector<bool>& used, RankClasses& out) {
  std::vector<std::int32_t> everybody(out.classes.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  for (std::size_t g = 0; g < used.size(); ++g) {
    out.members.add_group();
    if (!used[g]) continue;
    const auto& parts = plan.groups[g].parts;
    if (parts.empty()) out.members.add_part(everybody, plan.ranks);
    for (const auto& part : parts)
      out.members.add_part(classes_in(part, out), static_cast<std::int32_t>(part.size()));
    out.members.finish_group();
  }
}

// How a broadcast from `task.root` sees the classes of its group. A class of several ranks counts
// as reached when the farthest of its ranks is.
Rooted rooted_at(const doc::Plan& plan, const doc::Task& task, const RankClasses& classes) {
  Rooted rooted;
  const std::int32_t root = std::max(0, task.root);
  rooted.share.resize(classes.members.count(task.group));
  const doc::Group& group = plan.group_of(task);
  const auto parts = static_cast<std::int32_t>(std::max<std::size_t>(1, group.parts.size()));
  for (std::int32_t p = 0; p < parts; ++p) {
    const std::int32_t ranks = group.size_of_part(p, plan.ranks);
    for (std::int32_t i = 0; i < ranks; ++i) {
      const std::int32_t rank = group.parts.empty() ? i : group.parts[to_index(p)][to_index(i)];
      const std::uint32_t position = classes.members.position(task.group, classes.of_rank(rank));
      if (i == root) rooted.root.push_back(position);
      rooted.share[position] = std::max(rooted.share[position], share_of_way(i, root, ranks));
    }
  }
  return rooted;
}

// Once for each pair of group and root, since K-FAC broadcasts thousands of inverses from few
// roots.
void add_roots(const doc::Plan& plan, const doc::TaskGraph& graph, RankClasses& classes) {
  for (const doc::Task& task : graph.tasks)
    if (task.kind == doc::TaskKind::broadcast && !classes.rooted.contains({task.group, task.root}))
      classes.rooted[{task.group, task.root}] = rooted_at(plan, task, classes);
}

}  // namespace

RankClasses classes_of(const doc::Plan& plan, const doc::TaskGraph& graph,
                       const doc::Cluster& cluster) {
  const std::vector<bool> used = used_groups(plan, graph);
  bool parts = false;
  for (std::size_t g = 0; g < used.size(); ++g)
    parts = parts || (used[g] && !plan.groups[g].parts.empty());
  RankClasses result;
  if (cluster.rank_speeds.empty() && !parts)
    result.classes.resize(1);
  else
    number_classes(plan, cluster, used, result);
  fill_members(plan, used, result);
  add_roots(plan, graph, result);
  return result;
}

// The arrays are flat, instead of a vector a group. Plans for K-FAC have thousands of groups of one
// rank, and a simulation copies the Membership into its TaskTimes.

void Membership::add_group() {
  Group& g = groups_.emplace_back();
  g.begin = g.end = static_cast<std::uint32_t>(classes_.size());
  g.parts_begin = g.parts_end = static_cast<std::uint32_t>(parts_.size());
}

void Membership::add_part(std::span<const std::int32_t> classes, std::int32_t ranks) {
  Group& g = groups_.back();
  classes_.insert(classes_.end(), classes.begin(), classes.end());
  const std::uint32_t before = g.end - g.begin;
  g.end = static_cast<std::uint32_t>(classes_.size());
  parts_.push_back({before, g.end - g.begin, ranks});
  g.parts_end = static_cast<std::uint32_t>(parts_.size());
}

void Membership::finish_group() {
  Group& g = groups_.back();
  if (g.begin == g.end) return;
  const auto [low, high] =
      std::minmax_element(classes_.begin() + g.begin, classes_.begin() + g.end);
  g.low = *low;
  g.range = static_cast<std::uint32_t>(*high - *low + 1);
  g.positions = static_cast<std::uint32_t>(positions_.size());
  positions_.resize(positions_.size() + g.range, kNoSlot);
  for (std::uint32_t k = g.begin; k < g.end; ++k)
    positions_[g.positions + static_cast<std::uint32_t>(classes_[k] - g.low)] = k - g.begin;
}

// A Plan has thousands of tasks but few kinds of them, so a price is a look-up of a cost curve and
// one evaluation. The curves are kept in a short list that is searched from the front.

double Prices::seconds_of_part(const doc::Task& task, int ranks) {
  if (ranks == ranks_ || !doc::is_communication(task.kind)) return seconds(task);
  if (ranks <= 1) return 0;
  return task.seconds + priced(task, ranks);
}

// The curve says when the last rank has the message. The split into a rank's own part and the rest
// is taken from its growth. Take a chain that pipelines chunks, with a curve of 1 ms + 1 ms/MiB.
// Each further MiB occupies every link for 1 ms, so 4 MiB keep a rank busy for 1 + 4 ms. Take a
// binomial tree of 4 ranks over links of 1 ms/MiB. Its curve grows by 2 ms/MiB, because the message
// takes two hops; the root does send it twice. If a curve grows faster than that, the excess is
// spent on the links of other ranks.
BroadcastTime Prices::broadcast_of_part(const doc::Task& task, int ranks) {
  const double last_s = seconds_of_part(task, ranks);
  if (ranks <= 1) return {last_s, last_s};
  const cost::CostCurve& curve = curve_of(task, ranks);
  const auto bytes = static_cast<double>(task.priced_bytes());
  const double whole_s = curve.seconds(bytes);
  // Two octaves, since fitted curves have jumps and dents.
  const double growth_s = (curve.seconds(2 * bytes) - curve.seconds(bytes / 2)) / 1.5;
  // The root of a binomial tree sends it so often over its own link; no rank does so more.
  const double copies = std::ceil(std::log2(ranks));
  const double bytes_per_s = model_.network_bytes_per_s();
  const double carried_s =
      bytes_per_s > 0 ? std::min(growth_s, copies * bytes / bytes_per_s) : growth_s;
  const double own_s = curve.seconds(0) + std::max(0.0, carried_s);
  if (!(own_s < whole_s)) return {last_s, last_s};
  // Bounds scale both alike.
  return {task.seconds + (last_s - task.seconds) * std::max(0.0, own_s) / whole_s, last_s};
}

const cost::CostCurve& Prices::add(const doc::Task& task, int ranks) {
  lines_.push_back({task.kind, task.wire, ranks,
                    cost::cost_curve(model_, collective_of(task.kind), ranks, task.wire)});
  return lines_.back().curve;
}

// The low or the high end of a price, as the Bound says.
double Prices::bounded(const cost::CostCurve& curve, double bytes) const {
  const cost::Estimate e = curve.estimate(bytes);
  return bound_ == Bound::low ? e.low : e.high;
}

double Prices::noise_times() const {
  const double apart = 1 + model_.cluster().noise_floor.value_or(0);
  return bound_ == Bound::expected ? 1 : bound_ == Bound::low ? 1 / apart : apart;
}

// Contention at a Bound. A network of a kind has slowdowns from 1 to its slowdown_high. A measured
// Cluster has a noise floor instead. The noise is in the time that is lost, not in the whole. With
// a floor of 10 %, a slowdown of 1.30 lies between 1 + .30 / 1.1 = 1.27 and 1 + .30 * 1.1 = 1.33.
doc::Contention Prices::contention() const {
  const doc::Cluster& cluster = model_.cluster();
  doc::Contention c = cluster.contention.value_or(doc::Contention{});
  if (bound_ == Bound::expected) return c;
  if (model_.has_spread()) {
    c.compute_slowdown = bound_ == Bound::low ? 1 : cluster.nominal->slowdown_high;
    return c;
  }
  const double times = noise_times();
  for (double* factor : {&c.compute_slowdown, &c.communication_slowdown, &c.coding_slowdown})
    if (*factor > 1) *factor = 1 + (*factor - 1) * times;
  for (double* seconds : {&c.message_s, &c.message_delay_s}) *seconds *= times;
  return c;
}

bool Prices::has_known_error() const {
  return !lines_.empty() &&
         std::ranges::all_of(lines_, [](const Line& l) { return l.curve.has_known_error(); });
}

// In a binomial tree a rank gets the message from the rank whose number, counted from the root, has
// one bit less. So the bits that are set in the number are the messages on the way. Among 8 ranks
// with root 0, rank 4 (100) is one message away. Ranks 3 (011) and 5 (101) are two messages away,
// and rank 7 (111) three. `most` is the largest count below `ranks`. Either the last rank has it,
// or the number of all ones that is one bit shorter. With 5 ranks that is rank 3 (011) with two
// messages, although the last rank, 4 (100), takes one.
double share_of_way(std::int32_t position, std::int32_t root, std::int32_t ranks) {
  if (ranks <= 1) return 0;
  const auto last = static_cast<unsigned>(ranks - 1);
  const int most = std::max(std::popcount(last), static_cast<int>(std::bit_width(last)) - 1);
  const auto relative = static_cast<unsigned>((position - root + ranks) % ranks);
  return static_cast<double>(std::popcount(relative)) / most;
}

}  // namespace linerate::sim
