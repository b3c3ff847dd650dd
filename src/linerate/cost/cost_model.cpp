#include "linerate/cost/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::cost {
namespace {

// The measured rank count nearest on a log scale; the asked dtype first, since bytes decide and an
// f32 table is the best guess for f16 traffic.
const doc::CollectiveCost* best_table(const doc::Cluster& cluster, Collective collective, int ranks,
                                      DType dtype) {
  const doc::CollectiveCost* best = nullptr;
  double least = 0;
  for (const doc::CollectiveCost& cost : cluster.collectives) {
    if (cost.collective != collective || cost.segments.empty() || cost.ranks < 2) continue;
    const double distance =
        std::abs(std::log2(ranks) - std::log2(cost.ranks)) + (cost.dtype == dtype ? 0 : 1e-6);
    if (!best || distance < least) best = &cost, least = distance;
  }
  return best;
}

// What was never measured goes by the all-reduce's table: its ring is a reduce-scatter and an
// all-gather of the same size, one after the other.
const doc::CollectiveCost* table_for(const doc::Cluster& cluster, Collective collective, int ranks,
                                     DType dtype) {
  if (cluster.collectives.empty()) return nullptr;
  const doc::CollectiveCost* own = best_table(cluster, collective, ranks, dtype);
  return own ? own : best_table(cluster, Collective::all_reduce, ranks, dtype);
}

double message_steps(Collective collective, int ranks) {
  const double others = std::max(0, ranks - 1);
  return collective == Collective::all_reduce ? 2 * others
         : collective == Collective::broadcast || collective == Collective::reduce
             ? std::ceil(std::log2(std::max(1, ranks)))
             : others;
}

}  // namespace

CostModel::CostModel(doc::Cluster cluster, CostOptions options)
    : CostModel(std::make_shared<const doc::Cluster>(std::move(cluster)), std::move(options)) {}

CostModel::CostModel(std::shared_ptr<const doc::Cluster> cluster, CostOptions options)
    : cluster_(std::move(cluster)), options_(std::move(options)) {
  static const AllReduceForm ring = all_reduce_forms().at("ring");
  all_reduce_ = options_.all_reduce == "ring" ? ring : all_reduce_forms().at(options_.all_reduce);
  check();
}

CostModel CostModel::with(CostOptions options) const { return {cluster_, std::move(options)}; }

void CostModel::check() const {
  if (!(options_.compression_ratio >= 1))
    throw UsageError(fmt::format("compression ratio: expected at least 1, found {}",
                                 options_.compression_ratio));
  if (options_.bandwidth && !(options_.bandwidth->value > 0))
    throw UsageError("bandwidth: expected more than 0 bit/s");
}

bool CostModel::has_bandwidth(int ranks) const {
  const bool inside_only = cluster_->node && ranks <= cluster_->ranks_per_node;
  return network_bytes_per_s() > 0 || inside_only;
}

bool CostModel::can_price(Collective collective, int ranks) const {
  return ranks <= 1 || has_bandwidth(ranks) || measured_ranks(collective, ranks).has_value();
}

void CostModel::require_bandwidth(int ranks) const {
  if (has_bandwidth(ranks)) return;
  throw InputError(cluster_->name.empty() ? "cluster" : cluster_->name,
                   "has no fitted collectives and no network bandwidth; calibrate it, give "
                   "--bandwidth, or write \"network\": {\"bandwidth\": \"10 Gbit/s\", "
                   "\"latency\": \"20 us\"}");
}

double CostModel::network_bytes_per_s() const {
  return options_.bandwidth ? options_.bandwidth->value : cluster_->network.bandwidth_bytes_per_s;
}

LinkCost CostModel::between_nodes() const {
  const double bandwidth = network_bytes_per_s() * options_.compression_ratio;
  return {options_.latency ? options_.latency->value : cluster_->network.latency_s,
          bandwidth > 0 ? 1 / bandwidth : 0, options_.add_table ? 0 : cluster_->reduce_s_per_byte};
}

LinkCost CostModel::inside_node() const {
  if (!cluster_->node) return between_nodes();
  const double bandwidth = cluster_->node->bandwidth_bytes_per_s * options_.compression_ratio;
  return {cluster_->node->latency_s, bandwidth > 0 ? 1 / bandwidth : 0,
          cluster_->reduce_s_per_byte};
}

Line CostModel::closed_form(Collective collective, int ranks) const {
  const bool two_levels = cluster_->ranks_per_node > 1 && cluster_->node;
  const LinkCost between = between_nodes();
  const LinkCost inside = two_levels ? inside_node() : between;
  const int g = two_levels ? std::min(ranks, cluster_->ranks_per_node) : 1;
  const int nodes = (ranks + g - 1) / g;
  // g ranks share the link between the nodes, and each sends 1/g of the array over it.
  const LinkCost& shared = between;
  const auto sum = [](Line a, Line b) {
    return Line{a.alpha_s + b.alpha_s, a.beta_s_per_byte + b.beta_s_per_byte};
  };
  switch (collective) {
    case Collective::all_reduce:
      return two_levels ? hierarchical_all_reduce(ranks, g, inside, between)
                        : all_reduce_(ranks, between);
    case Collective::reduce_scatter:
      return sum(ring_reduce_scatter(g, inside), ring_reduce_scatter(nodes, shared));
    case Collective::all_gather:
      return sum(ring_all_gather(g, inside), ring_all_gather(nodes, shared));
    case Collective::all_to_all: {
      const double outside = ranks > 0 ? static_cast<double>(ranks - g) / ranks : 0;
      return two_levels && nodes > 1
                 ? Line{(ranks - g) * between.alpha_s + (g - 1) * inside.alpha_s,
                        outside * g * between.beta_s_per_byte +
                            static_cast<double>(g - 1) / ranks * inside.beta_s_per_byte}
                 : pairwise_all_to_all(ranks, inside);
    }
    case Collective::broadcast:
    case Collective::reduce:
      return sum(binomial_broadcast(g, inside), binomial_broadcast(nodes, between));
    case Collective::barrier:
      return {binomial_broadcast(ranks, between).alpha_s, 0};
  }
  return {};
}

// prediction.md 4.3: latency is added per message step; of the bulk only the network's part scales.
FittedMove CostModel::move_of(const doc::CollectiveCost& cost, Collective collective,
                              int ranks) const {
  FittedMove move;
  if (cost.collective != collective) {
    move.moved = true;
    move.start_factor = message_steps(collective, ranks) / message_steps(cost.collective, ranks);
    move.bulk_factor = bus_factor(collective, ranks) / bus_factor(cost.collective, ranks);
  }
  const double measured = cluster_->network.bandwidth_bytes_per_s;
  if (options_.bandwidth && options_.bandwidth->value != measured) {
    const double asked = options_.bandwidth->value;
    const double volume = bus_factor(collective, ranks);
    move.moved = true;
    if (measured > 0) {
      move.bulk_factor *= measured / asked;
      if (cluster_->node && cluster_->node->bandwidth_bytes_per_s > 0)
        move.least_beta_s_per_byte = volume / cluster_->node->bandwidth_bytes_per_s;
    } else {
      // Unknown what limited the measurement: it stays the limit, the asked line may be a lower
      // one.
      move.least_beta_s_per_byte = volume / asked;
    }
  }
  if (options_.latency && options_.latency->value != cluster_->network.latency_s) {
    move.moved = true;
    move.added_s =
        message_steps(collective, ranks) * (options_.latency->value - cluster_->network.latency_s);
  }
  if (options_.compression_ratio > 1) {
    move.moved = true;
    move.bulk_factor /= options_.compression_ratio;
    move.least_beta_s_per_byte /= options_.compression_ratio;
  }
  return move;
}

CostCurve CostModel::curve(Collective collective, int ranks, DType dtype) const {
  CostCurve curve;
  curve.ranks = ranks;
  if (ranks <= 1) return curve;
  curve.fitted = table_for(*cluster_, collective, ranks, dtype);
  if (curve.fitted) {
    curve.move = move_of(*curve.fitted, collective, ranks);
    return curve;
  }
  require_bandwidth(ranks);
  curve.line = closed_form(collective, ranks);
  if (options_.add_table && !options_.add_table->empty() &&
      (collective == Collective::all_reduce || collective == Collective::reduce_scatter)) {
    curve.add = options_.add_table.get();
    curve.add_steps = ranks - 1;
    curve.add_share = 1.0 / ranks;
  }
  return curve;
}

Estimate CostModel::collective(Collective collective, std::int64_t bytes, int ranks,
                               DType dtype) const {
  return curve(collective, ranks, dtype).estimate(static_cast<double>(bytes));
}

std::optional<int> CostModel::measured_ranks(Collective collective, int ranks) const {
  const doc::CollectiveCost* table =
      ranks > 1 ? table_for(*cluster_, collective, ranks, DType::f32) : nullptr;
  return table ? std::optional(table->ranks) : std::nullopt;
}

bool CostModel::fitted(Collective collective, int ranks) const {
  return measured_ranks(collective, ranks).has_value();
}

}  // namespace linerate::cost
