#include "linerate/plan/exchange/decoupled_fusion.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

namespace linerate::plan {
namespace {

/// A way to exchange a prefix.
struct Way {
  double scattered_s = 0, gathered_s = 0;  // R, G
  std::int32_t from = 0;                   // the prefix before its last bucket,
  std::int32_t way = 0;                    // and which way of that one
};

/// The ways of a prefix that no other beats in both, by ascending R and so by descending G. Of ways
/// that take as long, the one whose last bucket is the largest is kept, and of those the first.
class Unbeaten {
 public:
  void clear() { ways_.clear(), probe_ = {.scattered_s = kNever, .gathered_s = kNever}; }
  const std::vector<Way>& ways() const { return ways_; }

  /// Whether ways that take at least as long as this are beaten, all of them.
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
  void set_probe() {
    probe_ = *std::min_element(ways_.begin(), ways_.end(), [](const Way& a, const Way& b) {
      return a.scattered_s + a.gathered_s < b.scattered_s + b.gathered_s;
    });
  }

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
    const auto last = std::find_if(
        first, ways_.end(), [&way](const Way& other) { return other.gathered_s < way.gathered_s; });
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
  /// The first way that takes longer to scatter.
  template <typename Ways>
  static auto behind(Ways& ways, double scattered_s) {
    return std::upper_bound(ways.begin(), ways.end(), scattered_s,
                            [](double s, const Way& way) { return s < way.scattered_s; });
  }
  std::vector<Way>::iterator behind(double s) { return behind(ways_, s); }
  std::vector<Way>::const_iterator behind(double s) const { return behind(ways_, s); }

  static constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<Way> ways_;
  Way probe_;
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
        begin_(prefix_.size() + 1),
        least_scattered_s_(prefix_.size()),
        least_gathered_s_(prefix_.size()),
        buckets_(problem.bytes.size()) {
    ways_.reserve(4 * prefix_.size());
    std::partial_sum(problem.bytes.begin(), problem.bytes.end(), prefix_.begin() + 1);
    ways_.push_back({});
    begin_[1] = 1;
  }

  DecoupledResult run() {
    for (std::size_t j = 1; j < prefix_.size(); ++j) {
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

  /// A last bucket of prefix j, from prefix i.
  struct Bucket {
    double scatter_s, gather_s, left_s;
    double least_scattered_s, least_gathered_s;  // no way takes less of either
  };

  /// Those that end with prefix j, the smallest first. Returns the one of the least sum.
  std::size_t price_buckets(std::size_t j, std::size_t count) {
    const double ready = problem_.ready_s[j - 1];
    double left = 0, least = std::numeric_limits<double>::infinity();
    std::size_t promising = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = j - 1 - k;
      left = std::max(left, problem_.forward_left_s[i]);
      const double bytes = prefix_[j] - prefix_[i];
      const double scatter = reduce_scatter_.seconds(bytes), gather = all_gather_.seconds(bytes);
      const Bucket bucket{scatter, gather, left, std::max(least_scattered_s_[i], ready) + scatter,
                          std::max(least_gathered_s_[i], left) + gather};
      buckets_[k] = bucket;
      const double sum = bucket.least_scattered_s + bucket.least_gathered_s;
      if (sum < least) least = sum, promising = k;
    }
    return promising;
  }

  void collect(std::size_t j) {
    const std::size_t count = j - static_cast<std::size_t>(problem_.fence[j - 1]);
    const std::size_t first = price_buckets(j, count);
    unbeaten_.clear();
    offer_ways(j, first);  // they beat most of the others, which then need no look
    unbeaten_.set_probe();
    for (std::size_t k = 0; k < count; ++k)
      if (k != first &&
          !unbeaten_.beat(buckets_[k].least_scattered_s, buckets_[k].least_gathered_s))
        offer_ways(j, k);
  }

  void offer_ways(std::size_t j, std::size_t k) {
    const Bucket& bucket = buckets_[k];
    const double ready = problem_.ready_s[j - 1];
    const std::size_t i = j - 1 - k;
    const std::span<const Way> before = ways_of(i);
    const auto scattered = [&](std::size_t w) {
      return std::max(before[w].scattered_s, ready) + bucket.scatter_s;
    };
    const auto gathered = [&](std::size_t w) {
      return std::max(before[w].gathered_s, bucket.left_s) + bucket.gather_s;
    };
    std::size_t w = 0;
    while (w + 1 < before.size() && before[w + 1].scattered_s <= ready &&
           gathered(w + 1) < gathered(w))
      ++w;
    for (; w < before.size(); ++w) {
      unbeaten_.offer(
          {scattered(w), gathered(w), static_cast<std::int32_t>(i), static_cast<std::int32_t>(w)});
      if (before[w].gathered_s <= bucket.left_s) break;  // the others take longer to scatter
    }
  }

  DecoupledResult result() const {
    const auto& left = problem_.forward_left_s;
    const double forward = left.empty() ? 0 : *std::max_element(left.begin(), left.end());
    const auto step_of = [&](const Way& way) {
      return std::max(way.scattered_s + way.gathered_s, problem_.backward_s + forward);
    };
    const std::span<const Way> last = ways_of(prefix_.size() - 1);
    const auto best = std::min_element(last.begin(), last.end(), [&](const Way& a, const Way& b) {
      return step_of(a) < step_of(b);
    });
    DecoupledResult result{step_of(*best), {}};
    const Way* way = &*best;
    for (auto j = static_cast<std::int32_t>(prefix_.size()) - 1; j > 0; j = way->from) {
      if (!result.ends.empty())
        way = &ways_of(static_cast<std::size_t>(j))[static_cast<std::size_t>(way->way)];
      result.ends.push_back(j);
    }
    std::reverse(result.ends.begin(), result.ends.end());
    return result;
  }

  const DecoupledProblem& problem_;
  const cost::CostCurve& reduce_scatter_;
  const cost::CostCurve& all_gather_;
  std::vector<double> prefix_;
  std::vector<std::size_t> begin_;  // [prefixes + 1] into ways_
  std::vector<Way> ways_;  // those of each prefix that are kept, one prefix after the other
  std::vector<double> least_scattered_s_, least_gathered_s_;  // [prefixes] of their ways
  std::vector<Bucket> buckets_;
  Unbeaten unbeaten_;
};

}  // namespace

DecoupledResult decoupled_fusion(const DecoupledProblem& problem,
                                 const cost::CostCurve& reduce_scatter,
                                 const cost::CostCurve& all_gather) {
  return DecoupledSearch(problem, reduce_scatter, all_gather).run();
}

}  // namespace linerate::plan
