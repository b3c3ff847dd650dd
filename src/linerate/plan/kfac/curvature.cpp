// What K-FAC needs from Workload, Cluster and strategy to be planned: which layers take part, what
// they cost, and who inverts what. Placements work on indices of the factors that are inverted at
// all; by_factor() and by_index() translate. Layers of normalisation, for example, have no factor
// to place.
//
// With kfac(hybrid) ranks form a grid. An example: 6 ranks and 2 rows have 3 columns, and rank r is
// in row r / 3 and column r % 3. Rank 4 owns a layer. Its column, ranks 1 and 4, holds the layer's
// inverses, so one broadcast inside the column brings them. Both make the direction, and broadcast
// it along their rows, to ranks 0 and 2 and to ranks 3 and 5.
#include "linerate/plan/kfac/curvature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/collective_times.hpp"

namespace linerate::plan {
namespace {

using doc::FactorSide;

bool is_convolution(const doc::Workload& workload, const doc::Block& b) {
  return workload.layers[to_index(b.layer)].kind == "conv2d";
}

/// The block as its factors see it. With subsampling they see one of n squared positions of a
/// convolution, so their products have as many times fewer rows.
doc::Block looked_at(doc::Block b, const doc::Workload& workload, const Kfac& kfac) {
  const std::int64_t of = std::int64_t{kfac.subsample} * kfac.subsample;
  if (is_convolution(workload, b))
    b.rows_a = (b.rows_a + of - 1) / of, b.rows_g = (b.rows_g + of - 1) / of;
  return b;
}

std::vector<PlannedBlock> blocks_of(const Kfac& kfac, const doc::Workload& workload,
                                    const std::optional<doc::SecondOrderCost>& cost) {
  std::vector<std::vector<std::int32_t>> of_layer(workload.layers.size());
  for (std::size_t p = 0; p < workload.gradients.size(); ++p)
    if (const int layer = workload.gradients[p].layer; layer >= 0)
      of_layer[to_index(layer)].push_back(static_cast<std::int32_t>(p));
  std::vector<PlannedBlock> blocks;
  for (const doc::Block& all : workload.blocks) {
    const doc::Block b = looked_at(all, workload, kfac);
    const auto& gradients = of_layer.at(to_index(b.layer));
    if (!kfac.takes(b) || gradients.empty()) continue;  // left to the optimizer; frozen
    PlannedBlock& block = blocks.emplace_back(PlannedBlock{.block = b, .gradients = gradients});
    for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
      block.factors[to_index(side)] = {doc::factor_s(b, side, cost), doc::inverse_s(b, side, cost)};
    }
    block.precondition_s = doc::precondition_s(b, cost, kfac.eigen);
  }
  return blocks;
}

/// One call for several inverses is used if each then takes less than this share of its time alone.
/// The difference has to be more than measured times are off.
constexpr double kWorthwhileShare = 0.95;

/// What several inverses in one call of the solver take. Groups of a convolution are one already.
void note_calls(const doc::SecondOrderCost& cost, PlannedBlock& block) {
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
    if (!block.block.dense(side) || block.block.groups > 1) continue;
    const std::int64_t dim = block.block.dimension(side);
    const double share = cost.together_share(dim);
    if (share > kWorthwhileShare) continue;
    block.factors[to_index(side)].most_together = cost.most_together(dim);
    block.factors[to_index(side)].together_share = share;
  }
}

void require_blocks(const Curvature& curvature, const doc::Workload& workload,
                    const std::string& strategy) {
  if (!curvature.blocks.empty()) return;
  if (workload.blocks.empty())
    throw UsageError(
        fmt::format("strategy {}: {} does not say which layers have Kronecker factors. Record the "
                    "trace with record_shapes=True and import it again, take a network of the zoo "
                    "(-w zoo:resnet50), or add \"blocks\" to the file",
                    strategy, workload.in_words()));
  throw UsageError(fmt::format(
      "strategy {}: expected a layer to precondition, found {} in {} that do not take part; "
      "norms=on and embeddings=on include them, and largest= those with a factor above {}",
      strategy, workload.blocks.size(), workload.in_words(), curvature.kfac.largest));
}

/// Work in place of seconds, if no cost is known: d^3 of a dense factor.
double work_of(const doc::Block& block, FactorSide side) {
  return block.dense(side) ? block.groups * std::pow(block.dimension(side), 3) : 0;
}

/// The factors that are inverted, by their index in the problem of placing them.
struct InverseSet {
  std::vector<std::int32_t> factors;
  PlacementProblem problem;

  void arrive(const Curvature& curvature, const FactorArrivals& arrivals) {
    problem.transfers = arrivals.transfers;
    problem.gradient_after = arrivals.gradient_after;
    problem.start_s = arrivals.computed_s;
    problem.after.clear();
    if (arrivals.after.empty()) return;
    for (const std::int32_t f : factors)
      problem.after.push_back(curvature.needed_by_inverse(f, arrivals.after));
  }
};

InverseSet inverses_of(const Curvature& curvature, const cost::CostModel& cost,
                       const FactorArrivals& arrivals) {
  InverseSet all;
  PlacementProblem& p = all.problem;
  p.ranks = curvature.ranks;
  if (curvature.kfac.owns_layers()) p.columns = curvature.columns();
  if (const auto& contention = cost.cluster().contention)
    p.communication_slowdown = contention->communication_slowdown;
  for (const PlannedBlock& block : curvature.blocks) p.layer_s.push_back(block.precondition_s);
  const bool is_free = !cost.cluster().second_order;
  MessageSeconds seconds_of;
  if (curvature.kfac.sharing != Sharing::d && curvature.rows > 1)
    seconds_of = seconds_of_messages(cost, Collective::broadcast, curvature.rows, curvature.dtype);
  for (std::int32_t f = 0; f < curvature.factors(); ++f) {
    const doc::Block& block = curvature.block_of(f).block;
    const FactorSide side = doc::side_of_factor(f);
    if (!block.dense(side)) continue;
    all.factors.push_back(f);
    p.layer.push_back(doc::block_of_factor(f));
    p.dims.push_back(block.dimension(side));
    p.inverse_s.push_back(is_free ? work_of(block, side) : curvature.planned(f).inverse_s);
    p.elements.push_back(curvature.inverse_elements(f) + doc::kInverseStatus);
    p.broadcast_s.push_back(seconds_of ? seconds_of(p.elements.back(), 1) : 0);
  }
  if (curvature.kfac.fuses_broadcasts) p.seconds_of = std::move(seconds_of);
  all.arrive(curvature, arrivals);
  return all;
}

/// Seconds a step, by how often each part runs. With kfac(dp) factors are of the owner's samples
/// alone, so owners change the numbers that training computes. Then sizes decide, and no clock may.
double seconds_of_layer(const Curvature& curvature, const PlannedBlock& block, bool is_free) {
  const Kfac& kfac = curvature.kfac;
  if (is_free || kfac.sharing == Sharing::dp)
    return work_of(block.block, FactorSide::a) + work_of(block.block, FactorSide::g);
  return (block.factors[0].inverse_s + block.factors[1].inverse_s) /
             static_cast<double>(kfac.inverse_interval) +
         block.precondition_s;
}

std::vector<std::int32_t> layer_owners(const Curvature& curvature, bool is_free) {
  if (curvature.kfac.placement == InversePlacement::in_turn) {
    std::vector<std::int32_t> owner(curvature.blocks.size());
    for (std::size_t b = 0; b < owner.size(); ++b)
      owner[b] = static_cast<std::int32_t>(b % to_index(curvature.ranks));
    return owner;
  }
  std::vector<double> seconds;
  for (const PlannedBlock& block : curvature.blocks)
    seconds.push_back(seconds_of_layer(curvature, block, is_free));
  return place_layers(seconds, curvature.ranks, curvature.columns());
}

// Owners of layers are fixed, so only the order is searched. Otherwise the strategy's rule decides.
// Without costs a search has nothing to weigh: then every rank inverts everything, as no inverse is
// worth a message.
Placement place_inverses(const Curvature& curvature, const InverseSet& inverses,
                         const cost::CostModel& cost) {
  const Kfac& kfac = curvature.kfac;
  const PlacementProblem& problem = inverses.problem;
  if (kfac.owns_layers()) {
    std::vector<std::int32_t> owner;
    for (const std::int32_t f : inverses.factors)
      owner.push_back(curvature.layer_owner[to_index(doc::block_of_factor(f))]);
    return place_on(problem, std::move(owner));
  }
  // A factor that costs nothing to invert is not worth a message.
  const bool is_free = !cost.cluster().second_order;
  const bool searches = kfac.placement == InversePlacement::search;
  if (kfac.sharing == Sharing::d || curvature.ranks == 1 || (searches && is_free))
    return place_everywhere(problem);
  switch (kfac.placement) {
    case InversePlacement::search:
      return place_by_search(problem);
    case InversePlacement::threshold:
      return place_by_threshold(problem, kfac.theta);
    case InversePlacement::longest_first:
      return place_longest_first(problem);
    default:
      return place_in_turn(problem);
  }
}

/// From indices of a problem to factors.
Placement by_factor(const Placement& placement, const Curvature& curvature,
                    const InverseSet& inverses) {
  Placement all;
  all.owner.assign(to_index(curvature.factors()), kEverywhere);
  const auto factor = [&](std::int32_t i) { return inverses.factors[to_index(i)]; };
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    all.owner[to_index(inverses.factors[i])] = placement.owner[i];
  for (const std::int32_t i : placement.order) all.order.push_back(factor(i));
  all.behind_arrivals = placement.behind_arrivals;
  if (curvature.kfac.owns_layers() && curvature.rows == 1) return all;
  for (const std::int32_t i : placement.sent) all.sent.push_back(factor(i));
  all.ends = placement.ends;
  return all;
}

/// From factors to indices of the problem.
Placement by_index(Placement placement, const Curvature& curvature, const InverseSet& inverses) {
  std::vector<std::int32_t> index(to_index(curvature.factors()), -1), owner;
  for (std::size_t i = 0; i < inverses.factors.size(); ++i) {
    const auto f = to_index(inverses.factors[i]);
    index[f] = static_cast<std::int32_t>(i);
    owner.push_back(placement.owner[f]);
  }
  placement.owner = std::move(owner);
  for (auto* const factors : {&placement.order, &placement.sent})
    for (std::int32_t& f : *factors) f = index[to_index(f)];
  return placement;
}

}  // namespace

// Reads everything once for all variants of a Plan. Only f32 inverses by Cholesky are called
// together.
Curvature curvature_of(const Kfac& kfac, const doc::Workload& workload, const cost::CostModel& cost,
                       int ranks, const std::string& strategy) {
  Curvature curvature;
  curvature.kfac = kfac;
  curvature.ranks = ranks;
  curvature.rows = kfac.rows_of_grid(ranks);
  const auto& second_order = cost.cluster().second_order;
  curvature.blocks = blocks_of(kfac, workload, second_order);
  require_blocks(curvature, workload, strategy);
  for (const PlannedBlock& b : curvature.blocks)
    for (const std::int32_t p : b.gradients)
      if (workload.gradients[to_index(p)].dtype == DType::f64) curvature.dtype = DType::f64;
  if (kfac.owns_layers()) curvature.layer_owner = layer_owners(curvature, !second_order);
  if (second_order && !kfac.eigen && curvature.dtype == DType::f32)
    for (PlannedBlock& block : curvature.blocks) note_calls(*second_order, block);
  return curvature;
}

// A step without inverses has only averages and directions; its timetable is that of an empty
// placement that waits for all arrivals.
double Curvature::done_s(const cost::CostModel& cost, const FactorArrivals& arrivals,
                         const Placement& placement) const {
  InverseSet inverses = inverses_of(*this, cost, arrivals);
  PlacementProblem& problem = inverses.problem;
  if (placement.order.empty()) {
    // Averages of what arrives come before directions.
    if (!arrivals.after.empty()) problem.after = {*std::ranges::max_element(arrivals.after)};
    Placement nothing;
    nothing.behind_arrivals = true;
    return overlapped_s(problem, nothing);
  }
  if (!cost.cluster().second_order) std::ranges::fill(problem.inverse_s, 0);
  return overlapped_s(problem, by_index(placement, *this, inverses));
}

std::int32_t Curvature::needed_by_inverse(std::int32_t factor,
                                          const std::vector<std::int32_t>& arrivals) const {
  const std::int32_t block = doc::block_of_factor(factor);
  return std::max(arrivals[to_index(doc::factor_index(block, FactorSide::a))],
                  arrivals[to_index(doc::factor_index(block, FactorSide::g))]);
}

Placement Curvature::place(const cost::CostModel& cost, const FactorArrivals& arrivals) const {
  const InverseSet inverses = inverses_of(*this, cost, arrivals);
  return by_factor(place_inverses(*this, inverses, cost), *this, inverses);
}

std::function<double(const FactorArrivals&)> Curvature::inverted_s(
    const cost::CostModel& cost, const FactorArrivals& arrivals) const {
  InverseSet inverses = inverses_of(*this, cost, arrivals);
  Placement placement = place_inverses(*this, inverses, cost);
  return [this, inverses = std::move(inverses),
          placement = std::move(placement)](const FactorArrivals& others) mutable {
    inverses.arrive(*this, others);
    return overlapped_s(inverses.problem, placement);
  };
}

MessageSeconds seconds_of_messages(const cost::CostModel& cost, Collective collective, int ranks,
                                   DType dtype) {
  return [curve = cost::cost_curve(cost, collective, ranks), size = size_of(dtype),
          tensor_s = ranks > 1 ? cost.cluster().tensor_s : 0](std::int64_t elements,
                                                              std::int64_t tensors) {
    return curve.seconds(static_cast<double>(elements * size)) +
           static_cast<double>(tensors) * tensor_s;
  };
}

std::vector<doc::Block> shapes_of(const Curvature& curvature) {
  std::vector<doc::Block> shapes;
  for (const PlannedBlock& b : curvature.blocks)
    shapes.push_back({.layer = b.block.layer,
                      .kind = b.block.kind,
                      .a = b.block.a,
                      .g = b.block.g,
                      .groups = b.block.groups});
  return shapes;
}

std::int32_t Curvature::single_rank_group(std::int32_t rank, doc::Plan& plan) const {
  return ranks == 1 ? doc::kWhole : plan.group({fmt::format("rank {}", rank), {{rank}}});
}

std::int32_t Curvature::inverse_group(std::int32_t owner, doc::Plan& plan) const {
  return owner == kEverywhere ? doc::kWhole : single_rank_group(owner, plan);
}

std::int32_t Curvature::holder_group(std::int32_t block, doc::Plan& plan) const {
  if (!kfac.owns_layers() || rows == ranks) return doc::kWhole;
  const std::int32_t owner = layer_owner[to_index(block)];
  if (rows == 1) return single_rank_group(owner, plan);
  const std::int32_t column = owner % columns();
  doc::Group group{fmt::format("column {}", column), {{}}};
  for (std::int32_t r = column; r < ranks; r += columns()) group.parts.front().push_back(r);
  return plan.group(group);
}

std::int32_t Curvature::direction_group(doc::Plan& plan) const {
  if (rows == 1) return doc::kWhole;
  doc::Group group{"rows", {}};
  for (std::int32_t row = 0; row < rows; ++row) {
    auto& part = group.parts.emplace_back(to_index(columns()));
    std::iota(part.begin(), part.end(), row * columns());
  }
  return plan.group(group);
}

std::int32_t Curvature::factor_group(std::int32_t block, doc::Plan& plan) const {
  return kfac.sharing == Sharing::dp ? single_rank_group(layer_owner[to_index(block)], plan)
                                     : doc::kWhole;
}

std::int32_t Curvature::root_among_holders(std::int32_t owner) const {
  return kfac.owns_layers() ? owner / columns() : owner;
}

std::int32_t Curvature::root_among_receivers(std::int32_t block) const {
  return layer_owner[to_index(block)] % columns();
}

std::string idle_ranks(const Kfac& kfac, std::int64_t layers, int ranks) {
  if (kfac.sharing != Sharing::dp || ranks <= layers) return "";
  return fmt::format(
      "kfac(dp): {} ranks share {} layers, so {} have no curvature to compute; kfac(hybrid) and "
      "kfac(spd) share work below a layer",
      ranks, layers, ranks - layers);
}

std::string too_large(const std::vector<TooLarge>& layers, std::int64_t largest) {
  if (layers.empty()) return "";
  std::vector<std::string> names;
  for (const TooLarge& layer : layers)
    names.push_back(fmt::format("{0} ({1} x {1})", layer.layer, layer.dimension));
  return fmt::format("kfac: left to the optimizer, because a factor is larger than largest={}: {}",
                     largest, join(names, ", "));
}

std::string too_large(const Kfac& kfac, const doc::Workload& workload) {
  std::vector<TooLarge> layers;
  for (const doc::Block& b : workload.blocks)
    if (kfac.finds_too_large(b))
      layers.push_back({workload.layers[to_index(b.layer)].name, largest_dimension(b)});
  return too_large(layers, kfac.largest);
}

std::vector<std::string> caveats_of(const Kfac& kfac, const doc::Workload& workload,
                                    const doc::Cluster& cluster, int ranks) {
  std::vector<std::string> notes;
  if (std::string left = too_large(kfac, workload); !left.empty()) notes.push_back(std::move(left));
  std::int64_t taken = 0, untimed = 0;
  bool times_convolutions = false;
  for (const doc::Block& b : workload.blocks) {
    if (!kfac.takes(b)) continue;
    ++taken;
    const bool knows_rows = b.rows_a > 0 || b.rows_g > 0;
    untimed += !knows_rows && !(b.factor_a_s && b.factor_g_s);
    times_convolutions |= (b.factor_a_s || b.factor_g_s) && is_convolution(workload, b);
  }
  if (!cluster.second_order)
    notes.push_back(
        "kfac: the Cluster does not say what factors, inverses and preconditioning cost "
        "(second_order), so what the Workload does not time counts as taking no time");
  else if (untimed > 0)
    notes.push_back(
        fmt::format("kfac: {} of {} layers have neither times nor rows, so their factors are "
                    "priced without the product",
                    untimed, taken));
  if (cluster.second_order && kfac.eigen)
    notes.push_back(
        "kfac(inverse=eigen): the Cluster has times of inverses (second_order). They count as "
        "those of eigendecompositions, which as a rule take several times as long");
  if (kfac.subsample > 1 && times_convolutions)
    notes.push_back(
        fmt::format("kfac(subsample={}): factors of convolutions take as long as the Workload "
                    "measured, whichever positions it looked at",
                    kfac.subsample));
  if (kfac.samples_labels)
    notes.push_back(
        fmt::format("kfac(fisher=mc): one more backward pass, {} in each step that updates "
                    "factors, is not in the prediction",
                    format_time(workload.backward_s)));
  if (const std::string idle = idle_ranks(kfac, taken, ranks); !idle.empty()) notes.push_back(idle);
  return notes;
}

}  // namespace linerate::plan
