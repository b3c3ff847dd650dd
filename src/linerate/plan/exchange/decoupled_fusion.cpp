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
// The search looks at O(L^2) last buckets, with at most kWays ways each. A bucket that is beaten
// even after the best R and the best G of its prefix is not combined.
#include "linerate/plan/exchange/fusion.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

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
  void clear() { ways_.clear(); }
  const std::vector<Way>& ways() const { return ways_; }

  /// Whether every way that takes at least as long as this in both values is beaten.
  bool beat(double scattered_s, double gathered_s) const {
    const std::ptrdiff_t next = as_soon_as(scattered_s);
    if (next == 0) return false;
    const Way& best = ways_[to_index(next - 1)];
    return best.gathered_s < gathered_s ||
           (best.gathered_s == gathered_s && best.scattered_s < scattered_s);
  }

  /// Adds a way unless it is beaten, and drops those that it beats. They stand next to each other:
  /// all that take at least as long to scatter and at least as long to gather.
  void offer(const Way& way) {
    auto first = ways_.begin() + as_soon_as(way.scattered_s);
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
  /// How many ways take no longer to scatter. There are few: they are looked at in turn.
  std::ptrdiff_t as_soon_as(double scattered_s) const {
    auto way = ways_.begin();
    while (way != ways_.end() && way->scattered_s <= scattered_s) ++way;
    return way - ways_.begin();
  }

  std::vector<Way> ways_;
};

class DecoupledSearch {
 public:
  /// More than this many ways of one prefix differ by little.
  static constexpr std::size_t kWays = 16;

  DecoupledSearch(const DecoupledProblem& problem, const cost::CostCurve& reduce_scatter,
                  const cost::CostCurve& all_gather)
      : problem_(problem),
        reduce_scatter_(reduce_scatter),
        all_gather_(all_gather),
        prefix_(problem.bytes.size() + 1),
        ways_(prefix_.size()) {
    std::partial_sum(problem.bytes.begin(), problem.bytes.end(), prefix_.begin() + 1);
    ways_.front().offer({});
  }

  DecoupledResult run() {
    for (std::size_t j = 1; j < ways_.size(); ++j) {
      collect(j);
      ways_[j].thin_out(kWays);
    }
    return result();
  }

 private:
  // Finds the unbeaten ways of prefix j. The last bucket grows from the end, and the forward pass
  // that is left when one of its gradients is first needed may grow with it. `fence` bounds the
  // bucket to one dtype.
  void collect(std::size_t j) {
    const auto from = to_index(problem_.fence[j - 1]);
    const double ready_s = problem_.ready_s[j - 1];
    double left_s = 0;
    for (std::size_t i = j; i-- > from;) {
      left_s = std::max(left_s, problem_.forward_left_s[i]);
      const double bytes = prefix_[j] - prefix_[i];
      const double scatter_s = reduce_scatter_.seconds(bytes);
      const double gather_s = all_gather_.seconds(bytes);
      const std::vector<Way>& before = ways_[i].ways();
      if (!ways_[j].beat(std::max(before.front().scattered_s, ready_s) + scatter_s,
                         std::max(before.back().gathered_s, left_s) + gather_s))
        offer_ways(j, i, left_s, scatter_s, gather_s);
    }
  }

  // Combines the last bucket with the ways of the prefix before it. Ways that are done before the
  // last gradient is ready all scatter to the same end, so only the one with the least G counts.
  // Ways that gather within the rest of the forward pass all gather alike, so the first of them
  // ends the loop.
  void offer_ways(std::size_t j, std::size_t i, double left_s, double scatter_s, double gather_s) {
    const double ready_s = problem_.ready_s[j - 1];
    const std::vector<Way>& before = ways_[i].ways();
    const auto scattered = [&](std::size_t w) {
      return std::max(before[w].scattered_s, ready_s) + scatter_s;
    };
    const auto gathered = [&](std::size_t w) {
      return std::max(before[w].gathered_s, left_s) + gather_s;
    };
    std::size_t w = 0;
    while (w + 1 < before.size() && before[w + 1].scattered_s <= ready_s &&
           gathered(w + 1) < gathered(w))
      ++w;
    for (; w < before.size(); ++w) {
      ways_[j].offer(
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
    const std::vector<Way>& last = ways_.back().ways();
    const auto best = std::ranges::min_element(last, {}, step_of);
    DecoupledResult result{step_of(*best), {}};
    const Way* way = &*best;
    for (auto j = static_cast<std::int32_t>(ways_.size()) - 1; j > 0; j = way->from) {
      if (!result.ends.empty()) way = &ways_[to_index(j)].ways()[to_index(way->way)];
      result.ends.push_back(j);
    }
    std::reverse(result.ends.begin(), result.ends.end());
    return result;
  }

  const DecoupledProblem& problem_;
  const cost::CostCurve& reduce_scatter_;
  const cost::CostCurve& all_gather_;
  std::vector<double> prefix_;  // bytes
  std::vector<Unbeaten> ways_;  // by prefix
};

}  // namespace

DecoupledResult decoupled_fusion(const DecoupledProblem& problem,
                                 const cost::CostCurve& reduce_scatter,
                                 const cost::CostCurve& all_gather) {
  return DecoupledSearch(problem, reduce_scatter, all_gather).run();
}

}  // namespace linerate::plan
