// A dynamic program over prefixes with two values each. R is when the channel is done with the
// prefix's reduce-scatters. G is how long before the end of the forward pass its all-gathers begin.
// A step takes R + G. A cut may be better in R and worse in G. So a prefix keeps every way that no
// other one beats in both, its Pareto front.
//
// An example: two gradients of 1 MiB get ready at 1 and 2 ms. Either half takes 1 ms + 1 ms/MiB.
// When they are needed, 1 and 4 ms of the next forward pass are left, so the second one is needed
// first.
// - One bucket: its reduce-scatter ends at 2 + 3 = 5 ms. Its all-gather begins 4 + 3 = 7 ms before
//   the end. The step takes 12 ms.
// - Two buckets: the reduce-scatters end at 1 + 2 = 3 and max(3, 2) + 2 = 5 ms. The all-gather of
//   the first gradient begins 1 + 2 = 3 ms before the end. The second gradient's begins max(3, 4) +
//   2 = 6 ms before. The step takes 11 ms.
//
// The search looks at O(L^2) last buckets, with at most kWays ways each. Most are skipped by
// bounds: a bucket that is beaten even after the best R and the best G of its prefix is not
// combined.
#include "linerate/plan/exchange/fusion.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A way to exchange a prefix, with its R and G in seconds. `from` is the prefix before its last
/// bucket, and `way` the way of that prefix that it goes on from.
struct Way {
  double scattered_s = 0, gathered_s = 0;  // R, G
  std::int32_t from = 0;                   // the prefix before its last bucket,
  std::int32_t way = 0;                    // and which way of that one
};

/// The ways of a prefix that no other one beats in both values, by ascending R and so by descending
/// G. Of ways that are equal in both, the one with the largest last bucket is kept, and of those
/// the first.
class Unbeaten {
 public:
  void clear() { ways_.clear(), probe_ = {.scattered_s = kNever, .gathered_s = kNever}; }
  const std::vector<Way>& ways() const { return ways_; }

  /// Whether every way that takes at least as long as this in both values is beaten.
  bool beat(double scattered_s, double gathered_s) const {
    // Most are beaten by one that is good at both; the others need a search.
    if (probe_.scattered_s < scattered_s && probe_.gathered_s < gathered_s) return true;
    const auto next = behind(scattered_s);
    if (next == ways_.begin()) return false;
    const Way& best = *(next - 1);
    return best.gathered_s < gathered_s ||
           (best.gathered_s == gathered_s && best.scattered_s < scattered_s);
  }

  /// The way of the least sum, which beats more than any other.
  const Way& least_sum() const {
    return *std::min_element(ways_.begin(), ways_.end(), [](const Way& a, const Way& b) {
      return a.scattered_s + a.gathered_s < b.scattered_s + b.gathered_s;
    });
  }
  void set_probe() { probe_ = least_sum(); }

  /// Adds a way unless it is beaten, and drops those that it beats. They stand next to each other:
  /// all that take at least as long to scatter and at least as long to gather.
  void offer(const Way& way) {
    auto first = behind(way.scattered_s);
    if (first != ways_.begin()) {
      Way& before = *(first - 1);
      if (before.gathered_s <= way.gathered_s) {
        if (before.gathered_s == way.gathered_s && before.scattered_s == way.scattered_s &&
            way.from < before.from)
          before = way;
        return;
      }
      if (before.scattered_s == way.scattered_s) --first;
    }
    auto last = first;
    while (last != ways_.end() && last->gathered_s >= way.gathered_s) ++last;
    if (first == last) {
      ways_.insert(first, way);
    } else {
      *first = way;
      ways_.erase(first + 1, last);
    }
  }

  /// Both ends, and the ways between them at equal distances.
  void thin_out(std::size_t most) {
    const std::size_t count = ways_.size();
    if (count <= most) return;
    for (std::size_t k = 0; k < most; ++k) ways_[k] = ways_[k * (count - 1) / (most - 1)];
    ways_.resize(most);
  }

 private:
  /// The first way that takes longer to scatter. There are few: they are looked at in turn.
  template <typename Ways>
  static auto behind(Ways& ways, double scattered_s) {
    auto way = ways.begin();
    while (way != ways.end() && way->scattered_s <= scattered_s) ++way;
    return way;
  }
  std::vector<Way>::iterator behind(double s) { return behind(ways_, s); }
  std::vector<Way>::const_iterator behind(double s) const { return behind(ways_, s); }

  std::vector<Way> ways_;
  Way probe_;
};

class DecoupledSearch {
 public:
  /// More than this many ways of one prefix differ by little.
  static constexpr std::size_t kWays = 16;
  /// After so many buckets it is asked whether larger ones are worth a look.
  static constexpr std::size_t kAtOnce = 6;

  DecoupledSearch(const DecoupledProblem& problem, const cost::CostCurve& reduce_scatter,
                  const cost::CostCurve& all_gather)
      : problem_(problem),
        reduce_scatter_(reduce_scatter),
        all_gather_(all_gather),
        along_lines_(climbs(reduce_scatter) && climbs(all_gather)),
        prefixes_(problem.bytes.size() + 1),
        begin_(prefixes_ + 1),
        prefix_(prefixes_),
        least_scattered_s_(prefixes_),
        least_gathered_s_(prefixes_),
        left_s_(prefixes_) {
    ways_.reserve(4 * prefixes_);
    std::partial_sum(problem.bytes.begin(), problem.bytes.end(), prefix_.begin() + 1);
    ways_.push_back({});
    begin_[1] = 1;
  }

  DecoupledResult run() {
    for (std::size_t j = 1; j < prefixes_; ++j) {
      collect(j);
      unbeaten_.thin_out(kWays);
      ways_.insert(ways_.end(), unbeaten_.ways().begin(), unbeaten_.ways().end());
      begin_[j + 1] = ways_.size();
      least_scattered_s_[j] = unbeaten_.ways().front().scattered_s;
      least_gathered_s_[j] = unbeaten_.ways().back().gathered_s;
    }
    return result();
  }

 private:
  std::span<const Way> ways_of(std::size_t prefix) const {
    return {ways_.data() + begin_[prefix], ways_.data() + begin_[prefix + 1]};
  }

  static bool climbs(const cost::CostCurve& curve) {
    return curve.is_line() && curve.line.beta_s_per_byte >= 0;
  }

  /// Brings `left_s_` up to prefix j: for each i, the forward pass that is left when a gradient of
  /// the last bucket i+1 .. j is first needed.
  void find_left(std::size_t from, std::size_t j) {
    const double last = problem_.forward_left_s[j - 1];
    double* const left = left_s_.data();
    for (std::size_t i = from; i < j; ++i) left[i] = std::max(left[i], last);
  }

  // Finds the unbeaten ways of prefix j. `fence` bounds the last bucket to one dtype.
  void collect(std::size_t j) {
    const auto from = to_index(problem_.fence[j - 1]);
    find_left(from, j);
    unbeaten_.clear();
    // What was best for the prefix before beats most others, which then need no look.
    offer(j, std::max(from, best_before_));
    unbeaten_.set_probe();
    if (along_lines_)
      collect_along(reduce_scatter_.line, all_gather_.line, from, j);
    else
      for (std::size_t i = j; i-- > from;) offer(j, i);
    best_before_ = to_index(unbeaten_.least_sum().from);
  }

  /// Tries the last buckets of prefix j from the prefixes [from, j), the smallest first. Both costs
  /// are lines that climb, so their sums are inlined; they are those of offer(). A larger bucket
  /// takes longer in both. So the search ends once even a bucket that finds an idle channel is
  /// beaten.
  void collect_along(cost::Line scatter, cost::Line gather, std::size_t from, std::size_t j) {
    const double end = prefix_[j], ready = problem_.ready_s[j - 1];
    const double* const prefix = prefix_.data();
    const double* const left = left_s_.data();
    const double* const scattered = least_scattered_s_.data();
    const double* const gathered = least_gathered_s_.data();
    for (std::size_t to = j; to > from;) {
      const std::size_t first = to - std::min(to - from, kAtOnce);
      for (std::size_t i = to; i-- > first;) {
        const double bytes = end - prefix[i];
        const double scatter_s = scatter(bytes), gather_s = gather(bytes);
        if (!unbeaten_.beat(std::max(scattered[i], ready) + scatter_s,
                            std::max(gathered[i], left[i]) + gather_s))
          offer_ways(j, i, scatter_s, gather_s);
      }
      unbeaten_.set_probe();
      // One that is larger still takes at least as long as this one if nothing is sent before.
      const double bytes = end - prefix[first];
      if (unbeaten_.beat(ready + scatter(bytes), left[first] + gather(bytes))) break;
      to = first;
    }
  }

  /// Offers the ways of prefix j with the last bucket from i. Their lower bound is tested first.
  void offer(std::size_t j, std::size_t i) {
    const double bytes = prefix_[j] - prefix_[i], ready = problem_.ready_s[j - 1];
    const double scatter_s = reduce_scatter_.seconds(bytes);
    const double gather_s = all_gather_.seconds(bytes);
    if (!unbeaten_.beat(std::max(least_scattered_s_[i], ready) + scatter_s,
                        std::max(least_gathered_s_[i], left_s_[i]) + gather_s))
      offer_ways(j, i, scatter_s, gather_s);
  }

  // Combines the last bucket with the ways of the prefix before it. Ways that are done before the
  // last gradient is ready all scatter to the same end, so only the one with the least G counts.
  // Ways that gather within the rest of the forward pass all gather alike, so the first of them
  // ends the loop.
  void offer_ways(std::size_t j, std::size_t i, double scatter_s, double gather_s) {
    const double left_s = left_s_[i], ready = problem_.ready_s[j - 1];
    const std::span<const Way> before = ways_of(i);
    const auto scattered = [&](std::size_t w) {
      return std::max(before[w].scattered_s, ready) + scatter_s;
    };
    const auto gathered = [&](std::size_t w) {
      return std::max(before[w].gathered_s, left_s) + gather_s;
    };
    std::size_t w = 0;
    while (w + 1 < before.size() && before[w + 1].scattered_s <= ready &&
           gathered(w + 1) < gathered(w))
      ++w;
    for (; w < before.size(); ++w) {
      unbeaten_.offer(
          {scattered(w), gathered(w), static_cast<std::int32_t>(i), static_cast<std::int32_t>(w)});
      if (before[w].gathered_s <= left_s) break;  // the others take longer to scatter
    }
  }

  // Walks back from the best way of the whole. A step is never shorter than backward and forward.
  DecoupledResult result() const {
    const auto& left = problem_.forward_left_s;
    const double forward = left.empty() ? 0 : *std::max_element(left.begin(), left.end());
    const auto step_of = [&](const Way& way) {
      return std::max(way.scattered_s + way.gathered_s, problem_.backward_s + forward);
    };
    const std::span<const Way> last = ways_of(prefixes_ - 1);
    const auto best = std::min_element(last.begin(), last.end(), [&](const Way& a, const Way& b) {
      return step_of(a) < step_of(b);
    });
    DecoupledResult result{step_of(*best), {}};
    const Way* way = &*best;
    for (auto j = static_cast<std::int32_t>(prefixes_) - 1; j > 0; j = way->from) {
      if (!result.ends.empty()) way = &ways_of(to_index(j))[to_index(way->way)];
      result.ends.push_back(j);
    }
    std::reverse(result.ends.begin(), result.ends.end());
    return result;
  }

  const DecoupledProblem& problem_;
  const cost::CostCurve& reduce_scatter_;
  const cost::CostCurve& all_gather_;
  bool along_lines_;  // both of them, and larger buckets take longer
  std::size_t prefixes_;
  std::vector<std::size_t> begin_;  // [prefixes + 1] into ways_
  std::vector<Way> ways_;       // those of each prefix that are kept, one prefix after the other
  std::vector<double> prefix_;  // [prefixes] bytes
  std::vector<double> least_scattered_s_, least_gathered_s_;  // [prefixes] of their ways
  std::vector<double> left_s_;   // [prefixes] of the forward pass: find_left()
  std::size_t best_before_ = 0;  // where the best last bucket of the prefix before begins
  Unbeaten unbeaten_;
};

}  // namespace

DecoupledResult decoupled_fusion(const DecoupledProblem& problem,
                                 const cost::CostCurve& reduce_scatter,
                                 const cost::CostCurve& all_gather) {
  return DecoupledSearch(problem, reduce_scatter, all_gather).run();
}

}  // namespace linerate::plan
