#include "linerate/plan/exchange/decoupled_fusion.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace linerate::plan {
namespace {

/// A way to exchange a prefix.
struct Way {
  double scattered_s = 0, gathered_s = 0;  // R, G
  std::int32_t from = 0;                   // the prefix before its last bucket,
  std::int32_t way = 0;                    // and which way of that one
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
    ways_.front().push_back({});
  }

  DecoupledResult run() {
    for (std::size_t j = 1; j < ways_.size(); ++j) {
      collect(j);
      keep_unbeaten();
      thin_out();
      ways_[j].assign(candidates_.begin(), candidates_.end());
    }
    return result();
  }

 private:
  void collect(std::size_t j) {
    candidates_.clear();
    double left = 0;
    const auto fence = static_cast<std::size_t>(problem_.fence[j - 1]);
    for (std::size_t i = j; i-- > fence;) {
      left = std::max(left, problem_.forward_left_s[i]);
      const double bytes = prefix_[j] - prefix_[i];
      const double scatter = reduce_scatter_.seconds(bytes), gather = all_gather_.seconds(bytes);
      for (std::size_t w = 0; w < ways_[i].size(); ++w) {
        const Way& before = ways_[i][w];
        candidates_.push_back({std::max(before.scattered_s, problem_.ready_s[j - 1]) + scatter,
                               std::max(before.gathered_s, left) + gather,
                               static_cast<std::int32_t>(i), static_cast<std::int32_t>(w)});
      }
    }
  }

  void keep_unbeaten() {
    // Ties go to the larger bucket, which was collected last.
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const Way& a, const Way& b) {
      if (a.scattered_s != b.scattered_s) return a.scattered_s < b.scattered_s;
      return a.gathered_s != b.gathered_s ? a.gathered_s < b.gathered_s : a.from < b.from;
    });
    double least = std::numeric_limits<double>::infinity();
    std::erase_if(candidates_, [&least](const Way& way) {
      const bool beaten = way.gathered_s >= least;
      least = std::min(least, way.gathered_s);
      return beaten;
    });
  }

  /// Both ends, and the ways between them at equal distances.
  void thin_out() {
    const std::size_t count = candidates_.size();
    if (count <= kWays) return;
    for (std::size_t k = 0; k < kWays; ++k)
      candidates_[k] = candidates_[k * (count - 1) / (kWays - 1)];
    candidates_.resize(kWays);
  }

  DecoupledResult result() const {
    const auto& left = problem_.forward_left_s;
    const double forward = left.empty() ? 0 : *std::max_element(left.begin(), left.end());
    const auto step_of = [&](const Way& way) {
      return std::max(way.scattered_s + way.gathered_s, problem_.backward_s + forward);
    };
    const std::vector<Way>& last = ways_.back();
    const auto best = std::min_element(last.begin(), last.end(), [&](const Way& a, const Way& b) {
      return step_of(a) < step_of(b);
    });
    DecoupledResult result{step_of(*best), {}};
    const Way* way = &*best;
    for (auto j = static_cast<std::int32_t>(ways_.size()) - 1; j > 0; j = way->from) {
      if (!result.ends.empty())
        way = &ways_[static_cast<std::size_t>(j)][static_cast<std::size_t>(way->way)];
      result.ends.push_back(j);
    }
    std::reverse(result.ends.begin(), result.ends.end());
    return result;
  }

  const DecoupledProblem& problem_;
  const cost::CostCurve& reduce_scatter_;
  const cost::CostCurve& all_gather_;
  std::vector<double> prefix_;
  std::vector<std::vector<Way>> ways_;  // by prefix, R ascending, G descending
  std::vector<Way> candidates_;
};

}  // namespace

DecoupledResult decoupled_fusion(const DecoupledProblem& problem,
                                 const cost::CostCurve& reduce_scatter,
                                 const cost::CostCurve& all_gather) {
  return DecoupledSearch(problem, reduce_scatter, all_gather).run();
}

}  // namespace linerate::plan
