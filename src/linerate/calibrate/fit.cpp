// From measured times to a cost with an error of its own:
//
// 1. Repetitions of a size become one sample, their median (merged).
// 2. A curve joins the samples, without outliers (curve.hpp).
// 3. The curve is made again without each sample, and has to foresee it (leave_one_out).
// 4. These errors give each segment its 90 % interval (set_intervals).
//
// Example of step 3. 1, 2 and 4 MiB take 1.0, 2.2 and 4.0 ms. Without 2 MiB the curve says 2.0 ms
// there, so the error is 2.0 / 2.2 - 1 = -9 %. The real curve has the sample, so as a rule it is
// off by less.
#include "linerate/calibrate/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "linerate/calibrate/curve.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::calibrate {
namespace {

using Samples = std::vector<doc::CostSample>;

constexpr std::size_t kFewestSizes = 3;  // that show an error of their own
constexpr std::size_t kMostLeftOut = 64;

std::string title(const doc::CollectiveCost& cost) {
  return fmt::format("{} {}{}", name_of(cost.collective), name_of(cost.dtype),
                     cost.in_place ? " in place" : "");
}

/// Ascending, one sample a size: the median of its repetitions with their spread.
Samples merged(const Samples& rows) {
  std::map<double, Samples> by_size;
  for (const doc::CostSample& row : rows)
    if (row.bytes > 0 && row.seconds > 0 && std::isfinite(row.seconds))
      by_size[row.bytes].push_back(row);
  Samples all;
  for (const auto& [bytes, same] : by_size) {
    std::vector<double> seconds;
    doc::CostSample sample{bytes, 0, same.front().low_s, same.front().high_s};
    for (const doc::CostSample& s : same) {
      seconds.push_back(s.seconds);
      if (same.size() == 1) continue;
      const double low = s.low_s > 0 ? s.low_s : s.seconds;
      sample.low_s = sample.low_s > 0 ? std::min(sample.low_s, low) : low;
      sample.high_s = std::max({sample.high_s, s.high_s, s.seconds});
    }
    sample.seconds = median(seconds);
    all.push_back(sample);
  }
  return all;
}

/// Throws InputError if a sample is faster than the link. On a link that carries `line_rate`, no
/// algorithm has a busbw above it (docs/units.md). Between N nodes of several ranks busbw counts
/// nodes. For an all-reduce each node has to send 2 (N - 1) / N of the data, whichever of its ranks
/// does so.
void check_line_rate(const doc::CollectiveCost& cost, double line_rate, int ranks_per_node) {
  const int per_node = cost.ranks_per_node > 0 ? cost.ranks_per_node : std::max(1, ranks_per_node);
  const int nodes = cost::nodes_for(cost.ranks, per_node);
  const bool crosses = per_node > 1 && nodes > 1;
  for (const doc::CostSample& s : cost.samples) {
    const double bus =
        s.bytes * bus_factor(cost.collective, crosses ? nodes : cost.ranks) / s.seconds;
    if (bus <= line_rate * 1.05) continue;
    throw InputError(
        cost.source,
        fmt::format("{}: {} in {} is a bus bandwidth{} of {}, above the line rate of {}; check the "
                    "units of the log, its rank count ({}) and --line-rate",
                    title(cost), format_size(s.bytes), format_time(s.seconds),
                    crosses ? fmt::format(" between {} nodes", nodes) : "", format_bit_rate(bus),
                    format_bit_rate(line_rate), cost.ranks));
  }
}

/// Fits made anew without one sample: both ends and up to 64 inner ones. The ends have no error,
/// since nothing beyond them is known, but their tables widen the intervals.
struct LeftOut {
  std::vector<HeldOutError> errors;  // ascending; not of ends and outliers
  std::vector<doc::CollectiveCost> tables;
};

LeftOut leave_one_out(const doc::CollectiveCost& cost) {
  LeftOut all;
  const std::vector<bool> is_outlier = find_outliers(cost.samples);
  const std::size_t last = cost.samples.size() - 1, count = std::min(last - 1, kMostLeftOut);
  std::vector<std::size_t> indices{0};
  for (std::size_t k = 0; k < count; ++k) indices.push_back(1 + k * (last - 1) / count);
  indices.push_back(last);
  for (const std::size_t i : indices) {
    if (is_outlier[i]) continue;
    doc::CollectiveCost& without = all.tables.emplace_back(cost);
    without.samples.erase(without.samples.begin() + static_cast<std::ptrdiff_t>(i));
    without.segments = Curve(without.samples).segments;
    if (i == 0 || i == last) continue;
    const doc::CostSample& truth = cost.samples[i];
    const double error = cost::evaluate(without, truth.bytes).seconds / truth.seconds - 1;
    all.errors.push_back({i, error});
  }
  return all;
}

int agreed_ranks(const doc::CollectiveCost& cost, int asked) {
  if (cost.ranks > 0 && asked > 0 && cost.ranks != asked)
    throw InputError(cost.source, fmt::format("expected {} ranks as --ranks says, found {}; leave "
                                              "--ranks out",
                                              asked, cost.ranks));
  const int ranks = cost.ranks > 0 ? cost.ranks : asked;
  if (ranks <= 0)
    throw UsageError(fmt::format(
        "--ranks: {} does not say how many ranks took part; give --ranks N", cost.source));
  if (ranks < 2)
    throw InputError(
        cost.source,
        "expected a log of at least 2 ranks, found one rank, which has nothing to exchange");
  return ranks;
}

/// The hosts listed in a log say how many ranks shared a node.
void check_ranks_per_node(const doc::CollectiveCost& cost, int said) {
  if (said > 0 && cost.ranks_per_node > said)
    throw InputError(
        cost.source,
        fmt::format("expected {} ranks a node as --ranks-per-node says, found {} on one host; "
                    "leave --ranks-per-node out",
                    said, cost.ranks_per_node));
}

/// A table of one straight line, without an error of its own.
Fit one_line(doc::CollectiveCost cost, std::int64_t to_bytes, const Line& line, double low,
             double high) {
  cost.segments = {{.from_bytes = 0,
                    .to_bytes = to_bytes,
                    .alpha_s = line.alpha_s,
                    .beta_s_per_byte = line.beta_s_per_byte,
                    .low = low,
                    .high = high}};
  return {std::move(cost), {}};
}

/// The same whatever the size.
Fit fit_barrier(doc::CollectiveCost cost) {
  std::vector<double> seconds;
  for (const doc::CostSample& s : cost.samples)
    if (s.seconds > 0 && std::isfinite(s.seconds)) seconds.push_back(s.seconds);
  if (seconds.empty())
    throw InputError(cost.source,
                     "barrier: expected a time above 0, found none; leave the barrier's rows out");
  const double middle = median(seconds);
  // One time says nothing about its spread: half and twice.
  const bool alone = seconds.size() < kFewestSizes;
  const double low = alone ? 0.5 : *std::min_element(seconds.begin(), seconds.end()) / middle;
  const double high = alone ? 2 : *std::max_element(seconds.begin(), seconds.end()) / middle;
  cost.samples.clear(), cost.switches.clear();
  return one_line(std::move(cost), INT64_MAX, {.alpha_s = middle}, low, high);
}

/// One or two sizes have no error to show. Their fit is a line through them, or for a lone one a
/// time in proportion to its bytes. The interval is half to twice as long, or as far as repetitions
/// scatter.
Fit fit_few(doc::CollectiveCost cost) {
  const Line line = RelativeLines(cost.samples).fit(0, cost.samples.size());
  double low = 0.5, high = 2;
  for (const doc::CostSample& s : cost.samples) {
    if (s.low_s > 0) low = std::min(low, s.low_s / s.seconds);
    if (s.high_s > 0) high = std::max(high, s.high_s / s.seconds);
  }
  const std::int64_t to_bytes = 2 * std::llround(cost.samples.back().bytes);
  return one_line(std::move(cost), to_bytes, line, low, high);
}

// A segment's interval answers how far a new measurement may lie from the curve. The evidence is
// the errors of samples near it that the fit did not see. Four errors are few, so their root mean
// square is multiplied by Student's t. The typical error of the whole curve takes part as one more.
//
// Example. The gap from 4 to 8 MiB has errors of 2 and 4 % next to it, and of 1 and 1 % beyond. The
// curve's typical error is 2 %. Weights are 1, 1, 1/2, 1/2 and 1. The mean square is (4 + 16 + 0.5
// + 0.5 + 4) / 4 = 6.25, its root 2.5 %. The weights are worth 4.6 errors, so t is 2.2 and the half
// width 5.6 %.

// Student's t, two-sided 90 %, by degrees of freedom: a gap's scale comes from few errors, fewest
// at the ends.
constexpr double kQuantiles[] = {6.31, 2.92, 2.35, 2.13, 2.02};

double t_quantile(double degrees) {
  const double at = std::clamp(degrees, 1.0, static_cast<double>(std::size(kQuantiles))) - 1;
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, std::size(kQuantiles) - 1);
  return std::lerp(kQuantiles[below], kQuantiles[above], at - static_cast<double>(below));
}

// Weight of the curve's typical error next to those of the neighbourhood. Two lucky neighbours must
// not promise that the gap between them is exact.
constexpr double kPriorWeight = 1;
// Two measurements of one idle network, minutes apart, differed by up to 2.4 % in 9 sizes of 10. A
// single run shows nothing of that, so this is the least half width. Fewer errors than a
// neighbourhood has may all be small by luck, and then this is the least deviation.
constexpr double kUsualNoise = 0.02;
constexpr std::size_t kNeighbourhood = 4;
constexpr int kPiecesInBracket = 4;

/// Half width, relative, in the gap between samples `gap` and `gap + 1`. It uses the nearest two
/// errors on either side; the nearer one weighs twice as much.
double half_width(std::span<const HeldOutError> errors, double typical, std::size_t gap) {
  const auto right =
      std::upper_bound(errors.begin(), errors.end(), gap,
                       [](std::size_t g, const HeldOutError& e) { return g < e.sample; });
  double weight = kPriorWeight, squares = kPriorWeight * kPriorWeight;
  double sum = kPriorWeight * typical * typical;
  const auto add = [&](std::span<const HeldOutError>::iterator e, double w) {
    weight += w, squares += w * w;
    sum += w * e->relative_error * e->relative_error;
  };
  if (right != errors.end()) add(right, 1.0);
  if (errors.end() - right > 1) add(right + 1, 0.5);
  if (right != errors.begin()) add(right - 1, 1.0);
  if (right - errors.begin() > 1) add(right - 2, 0.5);
  // So many errors of equal weight; one went into the choice of the curve.
  const double independent =
      std::min(weight * weight / squares, static_cast<double>(errors.size()) + kPriorWeight);
  const double t = t_quantile(independent - 1);
  const double least = (errors.size() < kNeighbourhood ? t : 1) * kUsualNoise;
  return std::max(least, t * std::sqrt(sum / weight));
}

/// Half the relative spread of a sample's own repetitions; 0 where unknown.
double spread(const doc::CostSample& s) {
  return s.high_s > s.low_s && s.low_s > 0 ? (s.high_s - s.low_s) / (2 * s.seconds) : 0;
}

double wider_spread(std::span<const doc::CostSample> samples, std::size_t gap) {
  return std::max(spread(samples[gap]), spread(samples[gap + 1]));
}

/// By gap, how far its repetitions scatter in units of the table's middle gap, at most 1. Small
/// messages scatter many times as far as large ones. So the curve's typical error, which comes from
/// both, is scaled down for large ones. 1 if a size says nothing of its repetitions.
std::vector<double> relative_scatter(std::span<const doc::CostSample> samples) {
  std::vector<double> scatter(samples.size() - 1);
  for (std::size_t gap = 0; gap < scatter.size(); ++gap) scatter[gap] = wider_spread(samples, gap);
  const double middle = median(scatter);
  for (double& s : scatter) s = s > 0 && middle > 0 ? std::min(1.0, s / middle) : 1;
  return scatter;
}

double at(const doc::CostSegment& s, double bytes) { return s.alpha_s + s.beta_s_per_byte * bytes; }

/// Cuts one segment into pieces of equal ratio.
std::vector<doc::CostSegment> pieces_of(const doc::CostSegment& whole) {
  std::vector<doc::CostSegment> pieces;
  const double ratio = static_cast<double>(whole.to_bytes) / static_cast<double>(whole.from_bytes);
  std::int64_t from = whole.from_bytes;
  for (int k = 1; k <= kPiecesInBracket; ++k) {
    const std::int64_t to = k == kPiecesInBracket
                                ? whole.to_bytes
                                : std::llround(static_cast<double>(whole.from_bytes) *
                                               std::pow(ratio, k / double{kPiecesInBracket}));
    if (to <= from) continue;
    doc::CostSegment piece = whole;
    piece.from_bytes = from, piece.to_bytes = to;
    pieces.push_back(piece);
    from = to;
  }
  return pieces;
}

/// Widens the interval of a piece to both regimes: inside the bracket nobody measured which one
/// rules.
void hold_both(doc::CostSegment& piece, const Switch& s) {
  for (const std::int64_t end : {piece.from_bytes, piece.to_bytes}) {
    const auto bytes = static_cast<double>(end);
    for (const Line& line : {s.left, s.right}) {
      const double ratio = line.at(bytes) / at(piece, bytes);
      piece.low = std::min(piece.low, ratio), piece.high = std::max(piece.high, ratio);
    }
  }
}

/// Widens each segment to the curves without a sample. Both curves are straight within a segment,
/// so their ratio is extreme at its ends.
void hold_all(doc::CollectiveCost& cost, std::span<const doc::CollectiveCost> without) {
  const cost::TableLaw whole(cost);
  for (const doc::CollectiveCost& other : without) {
    const cost::TableLaw law(other);
    for (doc::CostSegment& segment : cost.segments)
      for (const std::int64_t end : {segment.from_bytes, segment.to_bytes}) {
        const auto bytes = static_cast<double>(end);
        const double seconds = whole.at(bytes).seconds();
        if (!(seconds > 0)) continue;
        const double ratio = law.at(bytes).seconds() / seconds;
        segment.low = std::min(segment.low, ratio), segment.high = std::max(segment.high, ratio);
      }
  }
}

/// Sets low and high of cost.segments; `errors` ascend by sample and are not empty.
/// First each segment gets the half width of its gap, at least as far as repetitions scatter. Then
/// the segments inside a bracket are cut and widened to both regimes. Last, all are widened to the
/// curves without a sample.
void set_intervals(doc::CollectiveCost& cost, const Curve& curve,
                   std::span<const HeldOutError> errors,
                   std::span<const doc::CollectiveCost> without) {
  std::vector<double> sizes_of_errors;
  for (const HeldOutError& e : errors) sizes_of_errors.push_back(std::abs(e.relative_error));
  const double typical = median(sizes_of_errors) / kMedianOfNormal;
  const std::vector<double> scatter = relative_scatter(cost.samples);
  std::vector<doc::CostSegment> segments;
  for (doc::CostSegment& segment : cost.segments) {
    // The gap that holds the segment's beginning; the extrapolating ends take that of their
    // neighbour.
    const auto above = std::upper_bound(
        cost.samples.begin(), cost.samples.end(), static_cast<double>(segment.from_bytes),
        [](double bytes, const doc::CostSample& s) { return bytes < std::round(s.bytes); });
    const auto past = to_index(above - cost.samples.begin());
    const std::size_t gap = std::clamp<std::size_t>(past, 1, cost.samples.size() - 1) - 1;
    const double half =
        std::max(half_width(errors, typical * scatter[gap], gap), wider_spread(cost.samples, gap));
    // Symmetric in the ratio: twice and half are equally far off.
    segment.low = 1 / (1 + half), segment.high = 1 + half;
    const auto bracket =
        std::find_if(curve.switches.begin(), curve.switches.end(), [&](const Switch& s) {
          return std::llround(curve.kept[s.after].bytes) <= segment.from_bytes &&
                 segment.to_bytes <= std::llround(curve.kept[s.after + 1].bytes);
        });
    if (bracket == curve.switches.end()) {
      segments.push_back(segment);
      continue;
    }
    for (doc::CostSegment& piece : pieces_of(segment)) {
      hold_both(piece, *bracket);
      segments.push_back(piece);
    }
  }
  cost.segments = std::move(segments);
  hold_all(cost, without);
}

/// The link under a ring of cost.ranks ranks: cost/closed_form.hpp's ring, solved for alpha and
/// beta. The latency of a message step comes from the smallest sizes, the bandwidth from the
/// largest.
///
/// A ring of n ranks has 2 (n - 1) message steps for an all-reduce and n - 1 for any other
/// collective. The alpha of the smallest sizes, divided by these, is the latency of one step.
doc::Link link_of(const doc::CollectiveCost& cost) {
  const std::size_t n = cost.samples.size();
  const RelativeLines lines(cost.samples);
  const std::size_t few = std::min<std::size_t>(n, 4);
  const double steps = (cost.collective == Collective::all_reduce ? 2.0 : 1.0) * (cost.ranks - 1);
  const double beta = sustained_s_per_byte(cost.samples);
  doc::Link link;
  link.latency_s = lines.fit(0, few).alpha_s / steps;
  // Times that do not grow with size bound nothing: the largest sample's own bus bandwidth then
  // stands for the link.
  const doc::CostSample& last = cost.samples.back();
  const int sharers = cost::nodes_for(cost.ranks, cost::by_node_of(cost, 1));
  link.bandwidth_bytes_per_s =
      bus_factor(cost.collective, sharers) / (beta > 0 ? beta : last.seconds / last.bytes);
  return link;
}

// ---- all tables of a log ----

/// The table that shows a link; null if none does. Its largest message is within cost::kReach of
/// the largest of all, because latency alone makes small ones slow. The first all-reduce out of
/// place comes before other tables.
const doc::CollectiveCost* shows_link(const std::vector<doc::CollectiveCost>& tables,
                                      int ranks_per_node, bool inside) {
  const auto shows = [&](const doc::CollectiveCost& cost) {
    return !cost.samples.empty() && bus_factor(cost.collective, cost.ranks) > 0 &&
           cost::was_inside_node(cost, ranks_per_node) == inside;
  };
  double largest = 0;
  for (const doc::CollectiveCost& cost : tables)
    if (shows(cost)) largest = std::max(largest, cost.samples.back().bytes);
  const doc::CollectiveCost* found = nullptr;
  for (const doc::CollectiveCost& cost : tables) {
    if (!shows(cost) || cost.samples.back().bytes * cost::kReach < largest) continue;
    const bool better = cost.collective == Collective::all_reduce && !cost.in_place;
    if (!found || (better && found->collective != Collective::all_reduce)) found = &cost;
  }
  return found;
}

void put_links(doc::Cluster& cluster, std::optional<double> line_rate) {
  const auto* between = shows_link(cluster.collectives, cluster.ranks_per_node, false);
  const auto* inside = shows_link(cluster.collectives, cluster.ranks_per_node, true);
  if (between) cluster.network = link_of(*between);
  if (inside) cluster.node = link_of(*inside);
  doc::Link& slowest = between || !cluster.node ? cluster.network : *cluster.node;
  slowest.line_rate_bytes_per_s = line_rate.value_or(0);
}

/// Seconds a byte that 16-bit sums take beyond those of f32; 0 if no tables can be compared. It
/// compares tables of both types that are otherwise alike, at the larger half of their common
/// sizes. A rank adds (n - 1) / n of the bytes.
double half_sum_of(const std::vector<doc::CollectiveCost>& tables) {
  std::vector<double> extra;
  for (const doc::CollectiveCost& half : tables)
    for (const doc::CollectiveCost& full : tables) {
      const bool alike = half.collective == full.collective && half.ranks == full.ranks &&
                         half.in_place == full.in_place &&
                         half.ranks_per_node == full.ranks_per_node;
      const bool types =
          (half.dtype == DType::f16 || half.dtype == DType::bf16) && full.dtype == DType::f32;
      const bool adds = half.collective == Collective::all_reduce ||
                        half.collective == Collective::reduce_scatter;
      if (!alike || !types || !adds) continue;
      const double share = static_cast<double>(half.ranks - 1) / half.ranks;
      for (std::size_t i = half.samples.size() / 2; i < half.samples.size(); ++i) {
        const doc::CostSample& s = half.samples[i];
        if (s.bytes <= full.samples.back().bytes)
          extra.push_back((s.seconds - cost::evaluate(full, s.bytes).seconds) / (s.bytes * share));
      }
    }
  return extra.empty() ? 0 : std::max(0.0, median(extra));
}

}  // namespace

doc::CollectiveCost fit_collective(const doc::CollectiveCost& measured, const FitOptions& options) {
  return fit_with_errors(measured, options).cost;
}

/// Barriers, and tables of one or two sizes, have fits of their own. Any other table goes through
/// the steps at the head of this file.
Fit fit_with_errors(const doc::CollectiveCost& measured, const FitOptions& options) {
  doc::CollectiveCost cost = measured;
  cost.ranks = agreed_ranks(measured, options.ranks);
  if (cost.collective == Collective::barrier) return fit_barrier(std::move(cost));
  cost.samples = merged(measured.samples);
  cost.segments.clear(), cost.switches.clear();
  const std::size_t fewest = std::clamp<std::size_t>(options.fewest_sizes, 1, kFewestSizes);
  if (cost.samples.size() < fewest)
    throw InputError(cost.source,
                     fmt::format("{}: {} usable sizes, but a fit with an error needs at least {}; "
                                 "measure more sizes, such as powers of two from 1 KiB to 1 GiB",
                                 title(cost), cost.samples.size(), fewest));
  if (options.line_rate_bytes_per_s)
    check_line_rate(cost, *options.line_rate_bytes_per_s, options.ranks_per_node);
  if (cost.samples.size() < kFewestSizes) return fit_few(std::move(cost));

  const Curve curve(cost.samples);
  cost.segments = curve.segments;
  for (const Switch& s : curve.switches)
    cost.switches.push_back(
        {std::llround(curve.kept[s.after].bytes), std::llround(curve.kept[s.after + 1].bytes)});
  LeftOut left_out = leave_one_out(cost);
  set_intervals(cost, curve, left_out.errors, left_out.tables);
  for (const HeldOutError& e : left_out.errors) {
    const double error = std::abs(e.relative_error);
    cost.error_mean += error / static_cast<double>(left_out.errors.size());
    cost.error_max = std::max(cost.error_max, error);
  }
  return {std::move(cost), std::move(left_out.errors)};
}

/// Tables in place come last in the Cluster. A look-up takes the first match, and times out of
/// place are closest to training.
doc::Cluster fit_cluster(const std::vector<doc::CollectiveCost>& tables, const FitOptions& options,
                         std::vector<std::string>* notes) {
  for (const doc::CollectiveCost& table : tables)
    check_ranks_per_node(table, options.ranks_per_node);
  doc::Cluster cluster;
  std::vector<InputError> left_out;
  for (const doc::CollectiveCost& table : tables) {
    try {
      cluster.collectives.push_back(fit_collective(table, options));
    } catch (const InputError& e) {
      left_out.push_back(e);
    }
  }
  if (cluster.collectives.empty()) {
    if (!left_out.empty()) throw left_out.front();
    throw InputError("calibrate",
                     "expected times of a collective, found none in the log; give a log of "
                     "all-reduce or another collective");
  }
  for (const InputError& e : left_out) {
    std::string note = std::string("left out: ") + e.what();
    notes ? notes->push_back(std::move(note)) : log::warning(note);
  }
  // Out of place first: the first match is then the one closest to training.
  std::stable_sort(cluster.collectives.begin(), cluster.collectives.end(),
                   [](const auto& a, const auto& b) { return a.in_place < b.in_place; });
  for (const doc::CollectiveCost& cost : cluster.collectives) {
    cluster.ranks = std::max(cluster.ranks, cost.ranks);
    cluster.ranks_per_node = std::max(cluster.ranks_per_node, cost.ranks_per_node);
  }
  if (options.ranks_per_node > 0) cluster.ranks_per_node = options.ranks_per_node;
  put_links(cluster, options.line_rate_bytes_per_s);
  cluster.half_sum_s_per_byte = half_sum_of(cluster.collectives);
  cluster.source = tables.front().source;
  return cluster;
}

}  // namespace linerate::calibrate
