// How a price is found. curve() makes the cost of a collective on so many ranks as a function of
// its size. It uses the best source that there is:
//
// - Measured tables of this collective, of all-reduces, or of the halves of all-reduces
//   (part_for). Those of the nearest rank counts answer, moved by the collective's law
//   (FittedPart).
// - The law of a network's kind, with its spread (nominal_form).
// - Closed forms over the links that the Cluster states, of unknown error (closed_form). A
//   what-if's bandwidth, latency and compression change the answer of each (between_nodes,
//   move_of). At last, costs that contradict each other are bound by what must hold between them
//   (bound, curve).
//
// An example: nodes of 4 ranks were measured inside, and the network's link was given. On 4 ranks
// the table answers. 24 ranks fill 6 nodes. Their price is the closed form over both links, and at
// least that of the table on 4 ranks.
#include "linerate/cost/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/cost_curve.hpp"
#include "linerate/cost/fitted.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::cost {

namespace {

std::shared_ptr<const doc::Cluster> validated(doc::Cluster cluster) {
  validate(cluster);
  return std::make_shared<const doc::Cluster>(std::move(cluster));
}

/// Its network is known by its kind.
bool is_of_a_kind(const doc::Cluster& cluster) {
  return cluster.nominal && !cluster.nominal->name.empty();
}

bool is_half(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::all_gather;
}
bool is_ring(Collective c) { return c == Collective::all_reduce || is_half(c); }

/// Up to which size all-reduces are not two halves in turn; negative: at no size. A library may
/// reduce small messages by a tree, which takes less time than its ring's reduce-scatter alone. A
/// regime counts as such if most of its all-reduces took less than a half at the same size. The
/// difference has to be more than a measurement may be off. The answer is the end of the last such
/// regime. The two tables have the same ranks.
double another_schedule_up_to(const TableLaw& whole, const TableLaw& half) {
  const std::vector<double>& begins = whole.regimes();
  double up_to = -1;
  for (std::size_t r = 0; r < begins.size(); ++r) {
    const double end = r + 1 < begins.size() ? begins[r + 1] : INFINITY;
    std::size_t quicker = 0, all = 0;
    for (const doc::CostSample& sample : whole.table().samples) {
      const double s = sample.bytes;
      if (s < std::max(begins[r], half.sizes().from) || s >= end || s > half.sizes().to) continue;
      ++all;
      quicker += whole.at(s).seconds() * tolerance_at(s) < half.at(s).seconds();
    }
    if (2 * quicker > all + 1) up_to = end;  // one alone may be off
  }
  return up_to;
}

Line sum(const Line& a, const Line& b) {
  return {a.alpha_s + b.alpha_s, a.beta_s_per_byte + b.beta_s_per_byte};
}

// What goes between nodes of g ranks, which share the link. Each rank of a node exchanges 1/g of
// the array, all at once over the node's one link. So each sees a link of 1/g of the bandwidth and
// sends 1/g of the bytes, and the bytes of a node stay the same. With g = 1 every rank is a node.
Line across_nodes(Collective collective, int ranks, int g, const LinkCost& between,
                  AllReduceForm form) {
  const int nodes = (ranks + g - 1) / g;
  const LinkCost shared{between.alpha_s, between.beta_s_per_byte * g, between.gamma_s_per_byte};
  const auto of_part = [g](const Line& line) {
    return Line{line.alpha_s, line.beta_s_per_byte / g};
  };
  switch (collective) {
    case Collective::all_reduce:
      return of_part(form(nodes, shared));
    case Collective::reduce_scatter:
      return of_part(reduce_scatter_half(form, nodes, shared));
    case Collective::all_gather:
      return of_part(all_gather_half(form, nodes, shared));
    case Collective::all_to_all: {
      const double outside = ranks > 0 ? static_cast<double>(ranks - g) / ranks : 0;
      return {(ranks - g) * between.alpha_s, outside * g * between.beta_s_per_byte};
    }
    case Collective::barrier:
      return {binomial_broadcast(nodes, between).alpha_s, 0};
    default:
      return binomial_broadcast(nodes, between);
  }
}

}  // namespace

/// The measured tables of a Cluster as prices use them, made once.
struct CostModel::Laws {
  std::vector<TableLaw> tables;        // of Cluster::collectives, going on beyond their sizes
  double another_schedule_up_to = -1;  // of all-reduces; negative: at no size

  explicit Laws(const doc::Cluster& cluster);
};

// Makes each table's law, and lets other tables go on beyond its sizes. Out of its reach a table is
// worth less than others at their own sizes. A table of all-reduces from 1 to 8 MiB says less about
// 1 GiB than one of all-gathers up to 4 GiB. `others` are the tables that may go on. Those of the
// same collective come first, then of the same type, then of near rank counts. They are of
// all-reduces and their halves, and of the same place, next to the network or inside a node.
CostModel::Laws::Laws(const doc::Cluster& cluster) {
  const auto& all = cluster.collectives;
  for (const doc::CollectiveCost& cost : all)
    if (!cost.segments.empty() && cost.ranks >= 2)
      tables.emplace_back(cost, cluster.ranks_per_node);
  const std::vector<TableLaw> measured = tables;
  const auto alike = [&](const doc::CollectiveCost& a, const doc::CollectiveCost& b) {
    return was_inside_node(a, cluster.ranks_per_node) ==
               was_inside_node(b, cluster.ranks_per_node) &&
           (a.ranks_per_node == b.ranks_per_node || a.ranks_per_node == 0 || b.ranks_per_node == 0);
  };
  for (TableLaw& law : tables) {
    const doc::CollectiveCost& own = law.table();
    if (own.collective == Collective::barrier) continue;
    std::vector<const TableLaw*> others;
    for (const TableLaw& other : measured)
      if (&other.table() != &own && alike(own, other.table()) &&
          (other.table().collective == own.collective || is_ring(other.table().collective)))
        others.push_back(&other);
    const auto rank = [&](const TableLaw* other) {
      const doc::CollectiveCost& t = other->table();
      return std::tuple(t.collective != own.collective, t.dtype != own.dtype,
                        std::abs(std::log2(t.ranks) - std::log2(own.ranks)), t.collective);
    };
    std::ranges::stable_sort(others, {}, rank);
    for (const TableLaw* other : others)
      if (law.is_beyond_reach(*other)) law.go_on_with(other->moved_to(own.collective, own.ranks));
  }
  for (const TableLaw& whole : measured) {
    if (whole.table().collective != Collective::all_reduce) continue;
    for (const TableLaw& half : measured)
      if (is_half(half.table().collective) && half.table().ranks == whole.table().ranks &&
          half.table().dtype == whole.table().dtype && alike(whole.table(), half.table()))
        another_schedule_up_to =
            std::max(another_schedule_up_to, cost::another_schedule_up_to(whole, half));
  }
}

CostModel::CostModel(doc::Cluster cluster, CostOptions options)
    : CostModel(validated(std::move(cluster)), nullptr, std::move(options)) {
  laws_ = std::make_shared<const Laws>(*cluster_);
}

CostModel::CostModel(std::shared_ptr<const doc::Cluster> cluster, std::shared_ptr<const Laws> laws,
                     CostOptions options)
    : cluster_(std::move(cluster)), laws_(std::move(laws)), options_(std::move(options)) {
  static const AllReduceForm ring = all_reduce_forms().at("ring");
  all_reduce_ = options_.all_reduce == "ring" ? ring : all_reduce_forms().at(options_.all_reduce);
  check();
}

CostModel CostModel::with(CostOptions options) const {
  return {cluster_, laws_, std::move(options)};
}

void CostModel::check() const {
  if (!(options_.compression_ratio >= 1))
    throw UsageError(fmt::format("compression ratio: expected at least 1, found {}",
                                 options_.compression_ratio));
  if (options_.bandwidth && !(options_.bandwidth->value >= kLeastBandwidth.value))
    throw UsageError(fmt::format("bandwidth: expected at least 1 bit/s, found {:g} bit/s",
                                 8 * options_.bandwidth->value));
  for (const double rate : {cluster_->network.bandwidth_bytes_per_s,
                            cluster_->node ? cluster_->node->bandwidth_bytes_per_s : 0})
    if (rate > 0 && rate < kLeastBandwidth.value)
      throw InputError(cluster_->name.empty() ? "cluster" : cluster_->name,
                       fmt::format("bandwidth: expected 0 (unknown) or at least 1 bit/s, found "
                                   "{:g} bit/s",
                                   8 * rate));
}

bool CostModel::is_inside(int ranks) const {
  return cluster_->ranks_per_node > 1 && ranks <= cluster_->ranks_per_node;
}

int CostModel::nodes_of(int ranks) const { return nodes_for(ranks, cluster_->ranks_per_node); }

// The measured rank counts next to the one asked for: the largest of at most `ranks`, and all
// above. Of each count one table counts. The asked dtype comes first, because bytes decide and an
// f32 table is the best guess for f16 traffic. The reverse holds only without a table of the type,
// as 16-bit sums may be slow. All tables are of one placement: inside nodes, or across them with
// `ranks_per_node` ranks a node (0: any). They are tables of the collective `measured`.
FittedPart CostModel::nearest_tables(Collective measured, Collective collective, int ranks,
                                     DType dtype, bool inside, int ranks_per_node) const {
  std::vector<const TableLaw*> found;
  bool has_f32 = false;
  for (const TableLaw& law : laws_->tables) {
    const doc::CollectiveCost& cost = law.table();
    if (cost.collective != measured) continue;
    if (was_inside_node(cost, cluster_->ranks_per_node) != inside) continue;
    if (ranks_per_node != 0 && cost.ranks_per_node != 0 && cost.ranks_per_node != ranks_per_node)
      continue;
    found.push_back(&law);
    has_f32 |= cost.dtype == DType::f32;
  }
  if (dtype == DType::f32 && has_f32)
    std::erase_if(found, [](const TableLaw* law) { return law->table().dtype != DType::f32; });
  std::ranges::stable_sort(found, {}, [&](const TableLaw* law) {
    return std::pair(law->table().ranks, law->table().dtype != dtype);
  });
  std::vector<Anchor> anchors;
  for (const TableLaw* law : found) {
    if (!anchors.empty() && anchors.back().ranks() == law->table().ranks) continue;
    if (law->table().ranks <= ranks) anchors.clear();
    anchors.emplace_back(*law, collective);
  }
  return anchors.empty() ? FittedPart() : FittedPart(std::move(anchors), collective, ranks);
}

// A collective that was never measured goes by the all-reduce's table, or else by those of its
// halves. The all-reduce's ring is a reduce-scatter and an all-gather of the same size in turn. A
// measurement inside a node says nothing of the network between nodes. A measurement across nodes
// bounds the inside if nothing else is known.
FittedPart CostModel::part_for(Collective collective, int ranks, DType dtype) const {
  if (cluster_->collectives.empty() || ranks <= 1) return {};
  const auto nearest = [&](bool inside, int per_node) {
    for (const Collective measured :
         {collective, Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
      if (FittedPart part = nearest_tables(measured, collective, ranks, dtype, inside, per_node);
          part)
        return part;
    return FittedPart();
  };
  if (!is_inside(ranks)) return nearest(false, cluster_->ranks_per_node);
  FittedPart part = nearest(true, 0);
  return part || cluster_->node ? part : nearest(false, 0);
}

bool CostModel::has_bandwidth(int ranks) const {
  const bool inside_only = cluster_->node && ranks <= cluster_->ranks_per_node;
  return network_bytes_per_s() > 0 || inside_only;
}

bool CostModel::can_price(Collective collective, int ranks) const {
  if (ranks <= 1 || has_bandwidth(ranks)) return true;
  return !!part_for(collective, ranks, DType::f32);
}

void CostModel::require_bandwidth(int ranks) const {
  if (has_bandwidth(ranks)) return;
  const std::string name = cluster_->name.empty() ? "cluster" : cluster_->name;
  if (std::ranges::any_of(cluster_->collectives, [&](const doc::CollectiveCost& cost) {
        return was_inside_node(cost, cluster_->ranks_per_node);
      }))
    throw InputError(
        name, fmt::format("was measured inside nodes of {} ranks, and {} ranks need a network "
                          "between nodes; give --bandwidth (and --latency), calibrate with a log "
                          "across nodes as well, or give --ranks-per-node when calibrating",
                          std::max(2, cluster_->ranks_per_node), ranks));
  if (is_of_a_kind(*cluster_))
    throw InputError(name,
                     fmt::format("is one node of {} ranks, and {} ranks need a network between "
                                 "nodes; name it too, as in --network {},rdma:400Gbit/s",
                                 std::max(1, cluster_->ranks_per_node), ranks, name));
  throw InputError(name,
                   "has no fitted collectives and no network bandwidth; calibrate it, give "
                   "--bandwidth, or write \"network\": {\"bandwidth\": \"10 Gbit/s\", "
                   "\"latency\": \"20 us\"}");
}

double CostModel::network_bytes_per_s() const {
  if (!options_.bandwidth) return cluster_->network.bandwidth_bytes_per_s;
  const double line = options_.bandwidth->value;
  return is_of_a_kind(*cluster_) ? cluster_->nominal->between.goodput(line) : line;
}

double CostModel::line_bytes_per_s() const {
  if (options_.bandwidth) return options_.bandwidth->value;
  const double line = cluster_->network.line_rate_bytes_per_s;
  return line > 0 ? line : network_bytes_per_s();
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

// An example: an all-reduce of 8 ranks in 2 nodes of 4. Inside, a ring of 4 scatters and gathers:
// 2 * 3 steps and 2 * 3/4 of the array over the inner link. Between, 2 nodes reduce: 2 steps and
// the array once over the line. A flat ring would take 14 steps and send 1.75 times the array over
// the line.
Line CostModel::closed_form(Collective collective, int ranks, AllReduceForm form) const {
  const LinkCost between = between_nodes();
  if (cluster_->ranks_per_node <= 1 || !cluster_->node)
    return across_nodes(collective, ranks, 1, between, form);
  const LinkCost inside = inside_node();
  const int g = std::min(ranks, cluster_->ranks_per_node);
  const Line across = across_nodes(collective, ranks, g, between, form);
  switch (collective) {
    case Collective::all_reduce:
      return sum(sum(ring_reduce_scatter(g, inside), across), ring_all_gather(g, inside));
    case Collective::reduce_scatter:
      return sum(ring_reduce_scatter(g, inside), across);
    case Collective::all_gather:
      return sum(ring_all_gather(g, inside), across);
    case Collective::all_to_all:
      return sum(across, {(g - 1) * inside.alpha_s,
                          static_cast<double>(g - 1) / ranks * inside.beta_s_per_byte});
    case Collective::barrier:
      return {binomial_broadcast(g, inside).alpha_s + across.alpha_s, 0};
    default:
      return sum(binomial_broadcast(g, inside), across);
  }
}

// A network of a kind follows its law. A network that is known by its bandwidth alone takes at
// least the closed forms, and at most a ring over the slowest kind.
void CostModel::price_by_links(CostCurve& curve, Collective collective, int ranks) const {
  if (is_of_a_kind(*cluster_)) {
    curve.line = nominal_form(collective, ranks, End::expected);
    curve.ends = {nominal_form(collective, ranks, End::low),
                  nominal_form(collective, ranks, End::high)};
    return;
  }
  curve.line = closed_form(collective, ranks, all_reduce_);
  if (collective == Collective::all_reduce && options_.all_reduce == kRingOrTree)
    curve.trees = {closed_form(collective, ranks, double_tree_all_reduce),
                   closed_form(collective, ranks, short_double_tree_all_reduce)};
  if (cluster_->nominal)
    curve.ends = {Line{INFINITY, 0}, nominal_form(collective, ranks, End::high)};
}

// The law of a kind of network, as a line.
// - One ring over all ranks: every message step goes at the pace of the line. A byte takes as long
//   as on the slowest link of the ring.
// - By node: every node reduces inside. Then nodes exchange in trees or rail by rail, or send to
//   switches that add. Chunks follow one another, so the slower of the two levels counts.
//
// An example: 8 ranks in 2 nodes of 4 and 100 MB, over 1 GB/s between nodes and 10 GB/s inside. One
// ring sends 1.75 * 100 MB over each link, which takes 175 ms on the line. By node the line carries
// 100 MB, which takes 100 ms, and inside 1.5 * 100 MB take 15 ms. The bulk is 100 ms.
Line CostModel::nominal_form(Collective collective, int ranks, End end) const {
  const doc::NominalNetwork& nominal = *cluster_->nominal;
  const auto at_end = [end](double spread) {
    return end == End::expected ? 1 : end == End::low ? 1 / spread : spread;
  };
  const int nodes = nodes_of(ranks);
  const int g = std::min(ranks, std::max(1, cluster_->ranks_per_node));
  const bool all_reduces = collective == Collective::all_reduce;
  const bool by_node = nominal.between.adds || (nominal.law == doc::NetworkLaw::by_node && g > 1);
  const bool is_any = nominal.name.empty();
  double line_s_per_byte = between_nodes().beta_s_per_byte;
  if (is_any && line_s_per_byte > 0)
    line_s_per_byte = 1 / nominal.between.goodput(1 / line_s_per_byte);
  line_s_per_byte *= at_end(nominal.between.transfer_spread);
  const double inside_s_per_byte =
      inside_node().beta_s_per_byte * at_end(nominal.inside.transfer_spread);
  const auto start_up = [&](const doc::NominalLevel& level, double steps_s) {
    return at_end(level.start_spread) * (level.start_s + steps_s);
  };
  const double inside_s = inside_node().alpha_s, between_s = between_nodes().alpha_s;
  if (nodes == 1 && cluster_->node)
    return {start_up(nominal.inside, message_steps(collective, ranks) * inside_s),
            bus_factor(collective, ranks) * inside_s_per_byte};
  // Of an all-to-all a rank's parts for other nodes leave over the line that it shares.
  const bool to_all = collective == Collective::all_to_all;
  const double over_line = to_all ? g * static_cast<double>(ranks - g) / ranks
                           : nominal.between.adds && all_reduces
                               ? 1
                               : bus_factor(collective, by_node ? nodes : ranks);
  const double over_node = to_all    ? static_cast<double>(g - 1) / ranks
                           : by_node ? bus_factor(collective, g)
                                     : bus_factor(collective, ranks);
  const double bulk = std::max(over_line * line_s_per_byte,
                               cluster_->node && g > 1 ? over_node * inside_s_per_byte : 0);
  if (!by_node)
    return {start_up(nominal.between, message_steps(collective, ranks) * between_s), bulk};
  constexpr double kPorts = 40;  // of a switch that adds
  const double hops =
      nominal.between.adds ? 1 + std::log(nodes) / std::log(kPorts) : std::ceil(std::log2(nodes));
  const double steps = all_reduces ? 2 * hops : to_all ? ranks - g : hops;
  return {start_up(nominal.between, message_steps(collective, g) * inside_s + steps * between_s),
          bulk};
}

// What a what-if changes in a measured cost. Another latency adds its difference to every message
// step. Another bandwidth scales the bulk, by line rates: a collective is taken to use any line
// equally well. From 10 to 25 Gbit/s a bulk of 50 ms becomes 20 ms, but no less than the link
// inside a node takes. Compression divides the bulk.
FittedMove CostModel::move_of(Collective collective, int ranks, bool inside) const {
  FittedMove move;
  const doc::Link& network = cluster_->network;
  const double measured = network.line_rate_bytes_per_s > 0 ? network.line_rate_bytes_per_s
                                                            : network.bandwidth_bytes_per_s;
  if (!inside && options_.bandwidth && options_.bandwidth->value != measured) {
    const double asked = options_.bandwidth->value;
    const double volume = bus_factor(collective, ranks);
    move.moved = true;
    if (measured > 0) {
      move.bulk_factor *= measured / asked;
      if (cluster_->node && cluster_->node->bandwidth_bytes_per_s > 0)
        move.least_beta_s_per_byte = volume / cluster_->node->bandwidth_bytes_per_s;
    } else {
      // What limited the measurement is unknown and stays the limit; the asked line may be a lower
      // one.
      move.least_beta_s_per_byte = volume / asked;
    }
  }
  if (!inside && options_.latency && options_.latency->value != network.latency_s) {
    move.moved = true;
    move.added_s = message_steps(collective, ranks) * (options_.latency->value - network.latency_s);
  }
  if (options_.compression_ratio > 1) {
    move.moved = true;
    move.bulk_factor /= options_.compression_ratio;
    move.least_beta_s_per_byte /= options_.compression_ratio;
  }
  return move;
}

// What 16-bit additions take on top, a byte. A rank adds arriving numbers of (n - 1) / n of the
// array. Nothing is added if the type itself was measured.
double CostModel::half_sum(Collective collective, int ranks, DType dtype,
                           const FittedPart& from) const {
  const bool adds = collective == Collective::all_reduce ||
                    collective == Collective::reduce_scatter || collective == Collective::reduce;
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  const bool known = from && from.law().table().dtype == dtype;
  return adds && half && !known
             ? cluster_->half_sum_s_per_byte * static_cast<double>(ranks - 1) / ranks
             : 0;
}

// The least time a byte, whatever the algorithm: a node's data has to cross its line. busbw counts
// the same. 4 nodes send 2 * 3/4 of the array over each line in an all-reduce. 0: the line is not
// known.
double CostModel::floor_of(Collective collective, int ranks) const {
  const doc::Link& network = cluster_->network;
  const double stated = network.line_rate_assumed ? 0 : network.line_rate_bytes_per_s;
  const double line = options_.bandwidth ? options_.bandwidth->value : stated;
  if (is_inside(ranks) || !(line > 0)) return 0;
  const double volume =
      bus_factor(collective, nodes_of(ranks)) *
      (collective == Collective::all_to_all ? std::min(ranks, std::max(1, cluster_->ranks_per_node))
                                            : 1);
  return volume / line / options_.compression_ratio;
}

// Two rules hold between costs, whoever measured them. A message of no bytes is not free. And a job
// across nodes takes no less than a job on one of them. Closed forms agree with each other about
// all-reduces and their halves. So that they still do with this bound, theirs is one that agrees.
void CostModel::bound(CostCurve& curve, Collective collective, int ranks, DType dtype) const {
  const int per_node = cluster_->ranks_per_node;
  const bool is_beyond = per_node > 1 && ranks > per_node && !cluster_->collectives.empty() &&
                         can_price(collective, per_node);
  if (!curve.fitted) {
    if (!is_beyond) return;
    curve.made_of_halves_above = laws_->another_schedule_up_to;
    curve.one_node = std::make_shared<const CostCurve>(this->curve(collective, per_node, dtype));
    return;
  }
  curve.floor_s_per_byte = floor_of(collective, ranks);
  if (!(curve.seconds(0) > 0))
    curve.least_s = message_steps(collective, nodes_of(ranks)) * between_nodes().alpha_s;
  if (is_beyond)
    curve.one_node = std::make_shared<const CostCurve>(by_itself(collective, per_node, dtype));
}

// Adds the bounds between all-reduces and their halves (CostCurve::halves, CostCurve::whole),
// unless no half was measured: then all go by the same table and agree anyway.
CostCurve CostModel::curve(Collective collective, int ranks, DType dtype) const {
  CostCurve curve = by_itself(collective, ranks, dtype);
  if (!curve.fitted || !is_ring(collective)) return curve;
  const auto has = [&](bool (*kind)(Collective)) {
    return std::ranges::any_of(laws_->tables,
                               [&](const TableLaw& law) { return kind(law.table().collective); });
  };
  const bool has_whole = has([](Collective c) { return c == Collective::all_reduce; });
  if (!has(is_half)) return curve;
  curve.made_of_halves_above = laws_->another_schedule_up_to;
  const double above = curve.made_of_halves_above;
  const bool is_bound = above >= 0 && std::isfinite(above);
  if (is_half(collective)) {
    if (is_bound) curve.least_above = curve.estimate(above);
    if (has_whole)
      curve.whole =
          std::make_shared<const CostCurve>(by_itself(Collective::all_reduce, ranks, dtype));
    return curve;
  }
  auto halves = std::make_shared<const std::array<CostCurve, 2>>(
      std::array{by_itself(Collective::reduce_scatter, ranks, dtype),
                 by_itself(Collective::all_gather, ranks, dtype)});
  if (is_bound)
    curve.least_above = larger((*halves)[0].estimate(above), (*halves)[1].estimate(above));
  curve.is_sum_of_halves = !has_whole;
  curve.halves = std::move(halves);
  return curve;
}

// The cost without the bounds between all-reduces and their halves. The curves inside those bounds
// are made here, so that no bound refers to itself.
CostCurve CostModel::by_itself(Collective collective, int ranks, DType dtype) const {
  CostCurve curve;
  if (ranks <= 1) return curve;
  curve.fitted = part_for(collective, ranks, dtype);
  if (curve.fitted) {
    curve.fitted.set_move(move_of(collective, ranks, is_inside(ranks)));
  } else {
    require_bandwidth(ranks);
    price_by_links(curve, collective, ranks);
  }
  const double half_s_per_byte = half_sum(collective, ranks, dtype, curve.fitted);
  curve.line.beta_s_per_byte += half_s_per_byte;
  if (curve.trees)
    for (Line& tree : *curve.trees) tree.beta_s_per_byte += half_s_per_byte;
  bound(curve, collective, ranks, dtype);
  if (curve.fitted) return curve;
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
  const FittedPart part = part_for(collective, ranks, DType::f32);
  return part ? std::optional(part.law().table().ranks) : std::nullopt;
}

PriceSource CostModel::source(Collective collective, int ranks) const {
  const FittedPart part = part_for(collective, ranks, DType::f32);
  if (!part) return PriceSource::links;
  if (part.is_between()) return PriceSource::interpolated;
  return part.law().table().ranks == ranks ? PriceSource::measured : PriceSource::other_ranks;
}

bool CostModel::fitted(Collective collective, int ranks) const {
  return source(collective, ranks) != PriceSource::links;
}

}  // namespace linerate::cost
