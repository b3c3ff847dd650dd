// A segment's interval answers how far a new measurement may lie from the curve. The evidence is
// the errors of samples near it that the fit did not see. Four errors are few, so their root mean
// square is multiplied by Student's t. The typical error of the whole curve takes part as one more.
//
// Example. The gap from 4 to 8 MiB has errors of 2 and 4 % next to it, and of 1 and 1 % beyond. The
// curve's typical error is 2 %. Weights are 1, 1, 1/2, 1/2 and 1. The mean square is (4 + 16 + 0.5
// + 0.5 + 4) / 4 = 6.25, its root 2.5 %. The weights are worth 4.6 errors, so t is 2.2 and the half
// width 5.6 %.
#include "linerate/calibrate/interval.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "linerate/calibrate/relative_line.hpp"
#include "linerate/core/collective.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::calibrate {
namespace {

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
constexpr double kLeastHalfWidth = 0.002;  // no collective is measured better than this
// Fewer errors than a neighbourhood has may all be small by luck. Then the deviation is at least
// what repeated collectives differ by on an idle cluster.
constexpr std::size_t kNeighbourhood = 4;
constexpr double kUsualNoise = 0.02;
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
  const double least = errors.size() < kNeighbourhood ? t * kUsualNoise : kLeastHalfWidth;
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

}  // namespace

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

}  // namespace linerate::calibrate
