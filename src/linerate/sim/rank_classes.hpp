// Which classes of ranks are in which group of a Plan; slots and collectives are laid out by it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/cost/cost_curve.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::sim {

inline constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();

/// The classes of each group that a graph uses, part after part. Groups that the graph does not use
/// are empty. A class is in a part with all of its ranks or with none.
///
/// An example: 4 ranks in two nodes {0, 1} and {2, 3}, and rank 3 is slow. Then ranks 0 and 1 are
/// class 0, rank 2 is class 1 and rank 3 is class 2. The group of nodes has the classes 0, 1, 2 at
/// its positions 0, 1, 2. Its two parts are the positions [0, 1) and [1, 3), of two ranks each.
class Membership {
 public:
  struct Part {
    std::uint32_t begin = 0, end = 0;  // positions of its classes within the group
    std::int32_t ranks = 0;
  };

  std::span<const std::int32_t> classes_in(std::int32_t group) const {
    const Group& g = at(group);
    return {classes_.data() + g.begin, classes_.data() + g.end};
  }
  std::span<const Part> parts_of(std::int32_t group) const {
    const Group& g = at(group);
    return {parts_.data() + g.parts_begin, parts_.data() + g.parts_end};
  }
  /// How many classes are in the group.
  std::uint32_t count(std::int32_t group) const { return at(group).end - at(group).begin; }
  /// Where a class stands among the classes of the group; kNoSlot if it is in none of its parts.
  std::uint32_t position(std::int32_t group, std::int32_t rank_class) const {
    const Group& g = at(group);
    const auto offset = static_cast<std::uint32_t>(rank_class - g.low);
    return offset < g.range ? positions_[g.positions + offset] : kNoSlot;
  }

  /// Building it: groups in the order of the Plan, each with its parts.
  void add_group();
  void add_part(std::span<const std::int32_t> classes, std::int32_t ranks);
  /// Call it once the group added last has all its parts. position() answers from then on.
  void finish_group();

 private:
  // Positions are looked up in [low, low + range), the classes that the group spans: a group of one
  // rank costs one entry.
  struct Group {
    std::uint32_t begin = 0, end = 0;
    std::uint32_t parts_begin = 0, parts_end = 0;
    std::int32_t low = 0;
    std::uint32_t range = 0, positions = 0;
  };
  const Group& at(std::int32_t group) const { return groups_[to_index(group)]; }

  std::vector<Group> groups_;
  std::vector<Part> parts_;
  std::vector<std::int32_t> classes_;
  std::vector<std::uint32_t> positions_;
};

// Ranks that do the same work at the same speed are simulated once.

struct RankClass {
  double compute_factor = 1;    // multiplies compute and codec durations
  double delay_s = 0;           // once a step, before its first computation
  std::int32_t first_rank = 0;  // the lowest of its ranks
};

/// The classes of a group as a broadcast sees them.
struct Rooted {
  std::vector<std::uint32_t> root;  // [parts] the root's class, as a position within the group
  std::vector<double> share;        // [positions within the group] of the farthest rank of a class
};

struct RankClasses {
  std::vector<RankClass> classes;      // by their lowest rank
  std::vector<std::int32_t> class_of;  // [ranks]; empty: all in class 0
  Membership members;
  std::map<std::pair<std::int32_t, std::int32_t>, Rooted> rooted;  // by group and root

  /// For a broadcast's task.
  const Rooted& seen_by(const doc::Task& task) const { return rooted.at({task.group, task.root}); }
  int count() const { return static_cast<int>(classes.size()); }
  std::int32_t of_rank(std::int32_t rank) const {
    return class_of.empty() ? 0 : class_of[to_index(rank)];
  }
};

/// A class is of one speed and one delay, and of one part in every group that the graph's tasks
/// name. Throws InputError when such a group names a rank beyond the plan's.
RankClasses classes_of(const doc::Plan& plan, const doc::TaskGraph& graph,
                       const doc::Cluster& cluster);

// When a broadcast reaches each rank. It is passed on from rank to rank and waits for nobody.

/// The share of a broadcast's latency after which it reaches the rank at this position of a part.
/// It is 0 for the root. It is 1 for the ranks that most messages of a binomial tree lead to.
double share_of_way(std::int32_t position, std::int32_t root, std::int32_t ranks);

/// How long a broadcast occupies a rank that has come to it, and when it is everywhere. A rank is
/// through once its own link has carried the message and the message has reached it:
///   end = max(start + own_s, start of the root + own_s + share_of_way * (last_s - own_s)),
/// So the root waits for nobody, and the next broadcast of another root leaves while this one still
/// travels. Of ranks that come together the last one ends after last_s. An example: own_s is 2 ms,
/// last_s is 5 ms, and the root starts at 0 ms. A rank half the way from the root is reached at 3.5
/// ms, the farthest rank at 5 ms. If the farthest rank comes at 4 ms, it ends at 6 ms.
struct BroadcastTime {
  double own_s = 0, last_s = 0;

  double reaches_s(double share) const { return own_s + share * (last_s - own_s); }
};

// How long each task of a Plan takes: what the Workload says, or what the cost model asks for it.

// Which end of the cost model's interval counts.
enum class Bound { expected, low, high };

/// Prices tasks of a job of so many ranks. Keeps one cost curve per collective, wire type and size
/// of a part; valid as long as the cost model.
class Prices {
 public:
  Prices(const cost::CostModel& model, int ranks, Bound bound = Bound::expected)
      : model_(model),
        ranks_(ranks),
        bound_(bound),
        start_delay_s_(bound == Bound::low ? 0 : model.cluster().start_delay_s * noise_times()) {}

  /// A collective joins all ranks; what its task says comes on top of what the cost model does.
  double seconds(const doc::Task& task) {
    if (!doc::is_communication(task.kind)) return task.seconds;
    return task.seconds + priced(task, ranks_);
  }
  /// A collective joins `ranks` of them. A rank by itself exchanges nothing: 0.
  double seconds_of_part(const doc::Task& task, int ranks);

  /// Prices a broadcast among `ranks` of them, split into a rank's own part and the time until the
  /// last rank has it. A rank's own part is the start-up and the growth of the curve with the
  /// bytes, since each further byte occupies a link. It is no more than the root of a binomial tree
  /// sends over its link at the Cluster's bandwidth. The rest of the time is spent on other ranks'
  /// links: a chain of chunks fills, or inner ranks of a tree send on. The closed form of
  /// closed_form.hpp leaves no rest.
  BroadcastTime broadcast_of_part(const doc::Task& task, int ranks);

  /// The time from the end of a task's predecessors until an idle resource can start it
  /// (doc::Cluster::start_delay_s); `ranks`: of the part that it joins. None at the low bound,
  /// because threads that slept for less time wake sooner than those of the probe.
  double start_delay_s(const doc::Task& task, int ranks) const {
    return ranks > 1 && doc::is_communication(task.kind) ? start_delay_s_ : 0;
  }
  double start_delay_s(const doc::Task& task) const { return start_delay_s(task, ranks_); }

  const cost::CostModel& model() const { return model_; }
  /// The Cluster's contention. At a bound, the time that it costs is lower or higher by
  /// noise_times().
  doc::Contention contention() const;
  /// True when every collective priced so far carries a measured error: one of unknown error makes
  /// the whole unknown.
  bool has_known_error() const;

 private:
  struct Line {
    doc::TaskKind kind;
    DType wire;
    int ranks;
    cost::CostCurve curve;
  };
  /// Of times that threads take, between measurements of the Cluster (doc::Cluster::noise_floor).
  double noise_times() const;
  const cost::CostCurve& curve_of(const doc::Task& task, int ranks) {
    for (const Line& l : lines_)
      if (l.kind == task.kind && l.wire == task.wire && l.ranks == ranks) return l.curve;
    return add(task, ranks);
  }
  const cost::CostCurve& add(const doc::Task& task, int ranks);
  double priced(const doc::Task& task, int ranks) {
    const cost::CostCurve& curve = curve_of(task, ranks);
    const auto bytes = static_cast<double>(task.priced_bytes());
    return bound_ == Bound::expected ? curve.seconds(bytes) : bounded(curve, bytes);
  }
  double bounded(const cost::CostCurve& curve, double bytes) const;

  const cost::CostModel& model_;
  int ranks_;
  Bound bound_;
  double start_delay_s_;
  std::vector<Line> lines_;
};

}  // namespace linerate::sim
