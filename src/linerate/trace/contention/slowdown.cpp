// Kinds of work differ in length and in how often they repeat. A comparison is therefore weighted
// by its typical overlap in seconds. The interval needs to know how many comparisons these weights
// are worth: (sum of weights)^2 / sum of squares, the effective number of weighted samples. A kind
// with one repetition alone and ten touched ones is worth one comparison, since all ten share its
// base.
#include "linerate/trace/contention/slowdown.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "linerate/core/statistics.hpp"

namespace linerate::trace {
namespace {

constexpr double kAlone = 0.1, kBeside = 0.5;

struct Comparison {
  double lost = 0;    // 1 - 1 / factor
  double weight = 0;  // seconds compared, typical of the kind
};

struct Comparisons {
  std::vector<Comparison> all;
  double weight = 0;
  double squares = 0;  // of the weights of kinds, each over the pairs that it holds

  double worth() const { return squares > 0 ? weight * weight / squares : 0; }
};

double median_of(const std::vector<Repetition>& all, double Repetition::*what) {
  std::vector<double> values;
  for (const Repetition& r : all) values.push_back(r.*what);
  return median(values);
}

/// Adds the comparisons of one kind. Those alone may have been touched a little. Their median touch
/// is subtracted from that of the others, so that a comparison is over the difference.
void compare(std::span<const Repetition> kind, Comparisons& out) {
  std::vector<Repetition> alone, beside;
  for (const Repetition& r : kind) {
    if (r.seconds <= 0) continue;
    if (r.beside_s <= kAlone * r.seconds) alone.push_back(r);
    if (r.beside_s >= kBeside * r.seconds) beside.push_back(r);
  }
  if (alone.empty() || beside.empty()) return;
  const double base = median_of(alone, &Repetition::seconds);
  const double touched = median_of(alone, &Repetition::beside_s);
  // Weighted by what is typical of the kind: a stalled repetition counts no more than another one.
  const double weight = median_of(beside, &Repetition::beside_s) - touched;
  if (weight <= 0) return;
  for (const Repetition& r : beside)
    if (const double more = r.beside_s - touched; more > 0)
      out.all.push_back({(r.seconds - base) / more, weight}), out.weight += weight;
  const double whole = weight * static_cast<double>(beside.size());
  out.squares += whole * whole / static_cast<double>(std::min(alone.size(), beside.size()));
}

/// The value below which the share `q` of all weight lies. Each comparison's value stands in the
/// middle of its weight, and between two middles the value is linear.
double weighted_quantile(const Comparisons& sorted, double q) {
  const double at = q * sorted.weight;
  double before = 0, last_middle = 0;
  const Comparison* last = nullptr;
  for (const Comparison& c : sorted.all) {
    const double middle = before + c.weight / 2;
    if (middle >= at) {
      if (!last) return c.lost;
      return last->lost + (c.lost - last->lost) * (at - last_middle) / (middle - last_middle);
    }
    last = &c, last_middle = middle;
    before += c.weight;
  }
  return sorted.all.back().lost;
}

/// The factor for a loss of 0 to 1; absent if hardly any progress is left.
std::optional<double> factor_of(double lost) {
  constexpr double kStandstill = 0.99;
  return lost < kStandstill ? std::optional(std::max(1.0, 1 / (1 - lost))) : std::nullopt;
}

}  // namespace

SlowdownFound slowdown_of(std::vector<Repetition> repetitions) {
  std::stable_sort(repetitions.begin(), repetitions.end(),
                   [](const Repetition& a, const Repetition& b) { return a.kind < b.kind; });
  Comparisons found;
  for (auto from = repetitions.begin(); from != repetitions.end();) {
    const auto to = std::find_if(from, repetitions.end(),
                                 [from](const Repetition& r) { return r.kind != from->kind; });
    compare({from, to}, found);
    from = to;
  }
  SlowdownFound out{.slowdown = {}, .comparisons = found.worth()};
  if (out.comparisons < kFewestComparisons) return out;
  std::sort(found.all.begin(), found.all.end(),
            [](const Comparison& a, const Comparison& b) { return a.lost < b.lost; });
  // The order statistics between which the median of as many draws lies in 90 % of cases.
  const double around = kNormal90 / 2 / std::sqrt(out.comparisons);
  const auto factor = factor_of(weighted_quantile(found, 0.5));
  const auto low = factor_of(weighted_quantile(found, 0.5 - around));
  const auto high = factor_of(weighted_quantile(found, 0.5 + around));
  if (factor && low && high && *high / *low <= kWidestSlowdown)
    out.slowdown = Slowdown{*factor, *low, *high};
  return out;
}

}  // namespace linerate::trace
