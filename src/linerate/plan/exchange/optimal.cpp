// The exact fusion by dynamic programming. F[j] is when the first j gradients are exchanged. It is
// the least of max(F[i], ready_j) + T(P_j - P_i) over i < j. An example: three gradients of 1 MiB
// get ready at 1, 2 and 3 ms, and T is 2 ms + 1 ms/MiB.
//   F[1] = 1 + 3 = 4 ms
//   F[2] = min(max(4, 2) + 3, 2 + 4) = 6 ms, both in one bucket
//   F[3] = min(max(6, 3) + 3, max(4, 3) + 4, 3 + 5) = 8 ms. Two cuts end then; one bucket is fewer.
//
// For each j the last bucket grows from the end. It is done once sending alone takes longer than
// the best so far: in the example a bucket of F[2] that sends for more than 4 ms cannot be best. So
// O(L^2) buckets are looked at in the worst case, and few if start-ups are short.
#include "linerate/plan/exchange/fusion.hpp"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <numeric>

#include "linerate/core/index.hpp"
#include "linerate/cost/cost_curve.hpp"

namespace linerate::plan {
namespace {

// Times are whole ticks, far shorter than what matters. Sums of straight pieces then come out the
// same wherever they are cut, and ties are ties.
using Ticks = std::int64_t;
constexpr Ticks kFew = 1024;  // more than sums of sizes are off by
constexpr Ticks kNoEnd = std::numeric_limits<Ticks>::max() / 2;

// When a prefix finishes, in how many buckets, and after which prefix the last of them begins.
// Ordered as the result wants it: by time, then by buckets, then by `from`.
struct Cut {
  Ticks finish = 0;
  std::int32_t count = 0, from = 0;

  auto operator<=>(const Cut&) const = default;
};

// A straight piece of T. A bucket from P_i to P_j takes alpha + ticks(P_j) - ticks(P_i).
struct Piece {
  double to_bytes = 0, ticks_per_byte = 0;
  Ticks alpha = 0;
  Ticks beyond = kNoEnd;  // what larger buckets than its own take at least

  Ticks ticks(double bytes) const { return static_cast<Ticks>(ticks_per_byte * bytes); }
};

class OptimalSearch {
 public:
  OptimalSearch(const FusionProblem& problem, const cost::CostCurve& cost)
      : problem_(problem), prefix_(problem.bytes.size() + 1), best_(prefix_.size()) {
    std::partial_sum(problem.bytes.begin(), problem.bytes.end(), prefix_.begin() + 1);
    add_pieces(cost::affine_pieces(cost, prefix_.back()));
  }

  std::vector<std::int32_t> run() {
    for (std::size_t j = 1; j < best_.size(); ++j) best_[j] = best_cut(j);
    std::vector<std::int32_t> ends;
    for (auto j = static_cast<std::int32_t>(best_.size()) - 1; j > 0; j = best_[to_index(j)].from)
      ends.push_back(j);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

 private:
  // The largest number is 2^58 ticks, so no sum reaches 2^62.
  void add_pieces(const std::vector<cost::AffinePiece>& pieces) {
    double most = problem_.ready_s.empty() ? 0 : std::abs(problem_.ready_s.back());
    for (const cost::AffinePiece& p : pieces)
      most = std::max({most, std::abs(p.alpha_s), std::abs(p.beta_s_per_byte) * prefix_.back()});
    ticks_per_s_ = most > 0 ? std::exp2(58) / most : 1;
    Ticks beyond = kNoEnd;
    for (auto p = pieces.rbegin(); p != pieces.rend(); ++p) {
      pieces_.push_back(
          {p->to_bytes, p->beta_s_per_byte * ticks_per_s_, ticks(p->alpha_s), beyond});
      const double least_s = std::min(p->seconds(p->from_bytes), p->seconds(p->to_bytes));
      beyond = std::min(beyond, ticks(least_s) - kFew);
    }
    std::reverse(pieces_.begin(), pieces_.end());
    pieces_.back().to_bytes = std::numeric_limits<double>::infinity();
  }
  Ticks ticks(double seconds) const { return static_cast<Ticks>(seconds * ticks_per_s_); }

  Cut best_cut(std::size_t j) {
    const Ticks ready = ticks(problem_.ready_s[j - 1]);
    // The first prefix that the last bucket may begin after, by dtype and by the cap on sizes.
    if (!problem_.fence.empty()) low_ = std::max(low_, to_index(problem_.fence[j - 1]));
    while (low_ + 1 < j && prefix_[j] - prefix_[low_] > problem_.cap_bytes) ++low_;
    Cut best{kNoEnd, 0, 0};
    auto piece = pieces_.begin();
    for (std::size_t i = j; i-- > low_;) {
      while (prefix_[j] - prefix_[i] > piece->to_bytes) ++piece;
      const Ticks sending = piece->alpha + piece->ticks(prefix_[j]) - piece->ticks(prefix_[i]);
      const Cut cut{std::max(best_[i].finish, ready) + sending, best_[i].count + 1,
                    static_cast<std::int32_t>(i)};
      best = std::min(best, cut);
      const bool rises = piece->ticks_per_byte >= 0;
      if (rises && ready + std::min(sending, piece->beyond) > best.finish) break;
    }
    return best;
  }

  const FusionProblem& problem_;
  std::vector<double> prefix_;  // P[i]
  std::vector<Cut> best_;       // F[i], and how it comes about
  std::vector<Piece> pieces_;
  double ticks_per_s_ = 1;
  std::size_t low_ = 0;
};

// optimal(cap=..., wire=...)
class Optimal : public Exchange {
 public:
  Optimal(double cap_bytes, std::optional<DType> wire) : Exchange(wire), cap_bytes_(cap_bytes) {}

  void fuse(const FusionInput& input, const Fusion& out) const override {
    const auto& gradients = input.workload.gradients;
    std::vector<double> ready(gradients.size()), bytes(gradients.size());
    std::vector<std::int32_t> fence(gradients.size());
    const double scale = (input.form.gather ? input.ranks : 1) / input.form.ratio;
    for (std::size_t l = 0; l < gradients.size(); ++l) {
      ready[l] = gradients[l].ready_s;
      bytes[l] = static_cast<double>(gradients[l].elements *
                                     size_of(input.form.dtype(gradients[l].dtype))) *
                 scale;
      // Buckets hold one dtype.
      if (l > 0)
        fence[l] = gradients[l].dtype == gradients[l - 1].dtype ? fence[l - 1]
                                                                : static_cast<std::int32_t>(l);
    }
    std::int32_t begin = 0;
    for (const std::int32_t end :
         optimal_fusion({ready, bytes, fence, cap_bytes_ * scale}, exchange_curve(input))) {
      append_range(input.workload, begin, end, out.graph);
      begin = end;
    }
  }
  std::vector<std::string> caveats(bool encodes, bool contends) const override {
    std::vector<std::string> notes;
    if (encodes)
      notes.push_back(
          "optimal: encoding makes gradients ready later, and the search does not see that");
    if (contends)
      notes.push_back(
          "optimal: with contention transfer times depend on when a transfer runs; the search is "
          "exact only without it");
    return notes;
  }

 private:
  double cap_bytes_;
};

std::unique_ptr<const Exchange> make_optimal(const doc::Component& component) {
  doc::OptionReader options(component);
  const Bytes cap = options.size("cap", Bytes{std::numeric_limits<std::int64_t>::max()});
  const auto wire = options.wire();
  options.finish();
  return std::make_unique<Optimal>(static_cast<double>(cap.value), wire);
}

}  // namespace

std::vector<std::int32_t> optimal_fusion(const FusionProblem& problem,
                                         const cost::CostCurve& cost) {
  return OptimalSearch(problem, cost).run();
}

ExchangeLine strategy_optimal() {
  return {"optimal",
          {make_optimal, {.plans_by = PlansBy::cost}, {.options = {"wire=fp16"}}},
          "The contiguous buckets that finish first, by an exact dynamic program over the cost "
          "model's straight pieces.",
          "the problem of Shi, Chu & Li 2019, solved exactly"};
}

}  // namespace linerate::plan
