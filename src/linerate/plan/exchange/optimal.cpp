#include "linerate/plan/exchange/optimal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "linerate/doc/option_reader.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/exchange/fusion.hpp"

namespace linerate::plan {
namespace {

// One straight piece of T, for sizes up to `to_bytes`.
struct Piece {
  double to_bytes, alpha, beta;
};

class Search {
 public:
  Search(const FusionProblem& problem, const cost::CostCurve& cost)
      : problem_(problem),
        cost_(cost),
        finish_(problem.bytes.size() + 1),
        prefix_(finish_.size()),
        base_(finish_.size()),
        chosen_(finish_.size()) {
    std::partial_sum(problem.bytes.begin(), problem.bytes.end(), prefix_.begin() + 1);
    if (cost.add) split_into_pieces();
  }

  FusionResult run() {
    for (std::size_t j = 1; j < finish_.size(); ++j) {
      begin(j);
      if (cost_.fitted) {
        for (std::size_t i = low_; i < j; ++i) consider(i, cost_.seconds(prefix_[j] - prefix_[i]));
      } else if (cost_.add) {
        search_pieces();
      } else {
        search_line();
      }
      finish_[j] = best_;
      base_[j] = best_ - cost_.line.beta_s_per_byte * prefix_[j];
      chosen_[j] = {best_count_ + 1, best_from_};
    }
    return result();
  }

 private:
  // How a prefix is best exchanged: in how many buckets, and where the last of them begins.
  struct Chosen {
    std::int32_t count = 0, from = 0;
  };

  void begin(std::size_t j) {
    j_ = j;
    ready_ = problem_.ready_s[j - 1];
    best_ = std::numeric_limits<double>::infinity();
    if (!problem_.fence.empty())
      low_ = std::max(low_, static_cast<std::size_t>(problem_.fence[j - 1]));
    while (low_ + 1 < j && prefix_[j] - prefix_[low_] > problem_.cap_bytes) ++low_;
    while (behind_ < j && finish_[behind_] < ready_) ++behind_;
  }

  void consider(std::size_t i, double transfer) {
    const double finish = std::max(finish_[i], ready_) + transfer;
    if (finish > best_) return;
    const auto from = static_cast<std::int32_t>(i);
    const std::int32_t count = chosen_[i].count;
    if (finish == best_ && (count > best_count_ || (count == best_count_ && from >= best_from_)))
      return;
    best_ = finish, best_count_ = count, best_from_ = from;
  }

  double size(std::size_t i) const { return prefix_[j_] - prefix_[i]; }
  void consider_line(std::size_t i) { consider(i, cost_.line(size(i))); }

  // F never decreases when T is a rising line. Prefixes that finish before ready_ differ only in
  // what they leave to send: the longest is best. Of those that finish later, the shortest, k, is:
  // cut the plan of a longer prefix i at k, and F[i] >= F[k] + beta (P_i - P_k) follows, hence
  // F[i] + T(P_j - P_i) >= F[k] + T(P_j - P_k), with no fewer buckets.
  void search_line() {
    const std::size_t later = std::max(behind_, low_);
    if (later < j_) consider_line(later);
    for (std::size_t i = std::min(behind_, j_); i-- > low_;) {
      const double finish = ready_ + cost_.line(size(i));
      if (finish > best_) break;
      consider_line(i);
    }
  }

  void split_into_pieces() {
    double highest = 0;
    least_ = std::numeric_limits<double>::infinity();
    pieces_.reserve(cost_.add->pieces().size());
    piece_.assign(finish_.size(), pieces_.data());
    for (const cost::AddTable::Piece& p : cost_.add->pieces()) {
      const double alpha = cost_.line.alpha_s + cost_.add_steps * p.intercept;
      const double slope = cost_.add_steps * p.slope * cost_.add_share;
      const double to = p.to_bytes / cost_.add_share;
      pieces_.push_back({to, alpha, cost_.line.beta_s_per_byte + slope});
      // T - beta S is straight between the joints of the pieces, and constant in the last one.
      const double at_joint = slope == 0 ? alpha : alpha + slope * to;
      least_ = std::min(least_, at_joint);
      highest = std::max(highest, at_joint);
      drop_ = std::max(drop_, highest - at_joint);
    }
  }

  // The time to send what the prefix i leaves of j_. Sizes grow with j: the piece is where it was
  // when i was looked at last, or a little further, which a branch would often guess wrong.
  double transfer(std::size_t i) {
    const double bytes = size(i);
    const Piece* piece = piece_[i];
    piece += bytes > piece->to_bytes;
    while (bytes > piece->to_bytes) ++piece;
    piece_[i] = piece;
    return piece->alpha + piece->beta * bytes;
  }

  // T is no line: T(S) >= least_ + beta S, and where it falls behind its line, measured tables
  // being noisy, it does so by no more than drop_. search_line's argument then holds but for drop_:
  // of the prefixes that finish before ready_ those near the longest may be best, and of the
  // later ones those whose F - beta P is near the least, which comes first.
  void search_pieces() {
    const std::size_t later = std::clamp(behind_, low_, j_);
    search_earlier(later);
    search_later(later);
  }

  void search_earlier(std::size_t later) {
    if (later == low_) return;
    const double beta = cost_.line.beta_s_per_byte, shortest = size(later - 1);
    const double at_shortest = ready_ + transfer(later - 1) - drop_ - rounding();
    for (std::size_t i = later; i-- > low_;) {
      if (at_shortest + beta * (size(i) - shortest) > best_) break;
      consider(i, transfer(i));
    }
  }

  // Most of these lose: the least finish of a few at a time is found without a branch.
  void search_later(std::size_t later) {
    constexpr std::size_t kAtOnce = 4;
    const double offset = least_ + cost_.line.beta_s_per_byte * prefix_[j_] - rounding();
    std::size_t i = later;
    for (; i + kAtOnce <= j_; i += kAtOnce) {
      if (base_[i] + offset > best_ + drop_) return;
      std::array<double, kAtOnce> transfers;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t k = 0; k < kAtOnce; ++k) {
        transfers[k] = transfer(i + k);
        least = std::min(least, finish_[i + k] + transfers[k]);
      }
      if (least > best_) continue;
      for (std::size_t k = 0; k < kAtOnce; ++k) consider(i + k, transfers[k]);
    }
    for (; i < j_; ++i) consider(i, transfer(i));
  }

  double rounding() const { return 1e-12 * std::abs(ready_); }

  FusionResult result() const {
    FusionResult result{finish_.back(), {}};
    for (auto j = static_cast<std::int32_t>(finish_.size()) - 1; j > 0;
         j = chosen_[static_cast<std::size_t>(j)].from)
      result.ends.push_back(j);
    std::reverse(result.ends.begin(), result.ends.end());
    return result;
  }

  const FusionProblem& problem_;
  const cost::CostCurve& cost_;
  std::vector<double> finish_, prefix_, base_;  // F[i], P[i], F[i] - beta P[i]
  std::vector<Chosen> chosen_;
  std::vector<Piece> pieces_;
  std::vector<const Piece*> piece_;  // of T, for the size from i to the j that last looked at it
  double least_ = 0, drop_ = 0;      // of T(S) - beta S: the least, the largest drop as S grows
  // The step from i to j_:
  std::size_t j_ = 0, low_ = 0, behind_ = 0;
  double ready_ = 0, best_ = 0;
  std::int32_t best_count_ = 0, best_from_ = 0;
};

// optimal(cap=..., wire=...)
class Optimal : public Exchange {
 public:
  Optimal(double cap_bytes, std::optional<DType> wire) : cap_bytes_(cap_bytes), wire_(wire) {}

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
    const DType wire = gradients.empty() ? DType::f32 : input.form.dtype(gradients.front().dtype);
    const cost::CostCurve curve = input.cost.curve(
        input.form.gather ? Collective::all_gather : Collective::all_reduce, input.ranks, wire);
    std::int32_t begin = 0;
    for (const std::int32_t end :
         optimal_fusion({ready, bytes, fence, cap_bytes_ * scale}, curve).ends) {
      append_range(input.workload, begin, end, out.graph);
      begin = end;
    }
  }
  std::optional<DType> wire() const override { return wire_; }
  std::vector<std::string> caveats(bool encodes, bool contends) const override {
    std::vector<std::string> notes;
    if (encodes)
      notes.push_back("optimal: encoding delays readiness, which the search does not see");
    if (contends)
      notes.push_back(
          "optimal: contention makes transfer times depend on time; the search is exact "
          "only without it");
    return notes;
  }

 private:
  double cap_bytes_;
  std::optional<DType> wire_;
};

std::unique_ptr<const Exchange> make(const doc::Component& component) {
  doc::OptionReader options(component);
  const Bytes cap = options.size("cap", Bytes{std::numeric_limits<std::int64_t>::max()});
  const auto wire = options.wire();
  options.finish();
  return std::make_unique<Optimal>(static_cast<double>(cap.value), wire);
}

}  // namespace

FusionResult optimal_fusion(const FusionProblem& problem, const cost::CostCurve& cost) {
  return Search(problem, cost).run();
}

ExchangeLine strategy_optimal() {
  return {"optimal",
          {make, {.plans_by = PlansBy::cost}},
          "The contiguous buckets that finish first, by an exact O(L^2) dynamic program over the "
          "cost model.",
          "the problem of Shi, Chu & Li 2019, solved exactly"};
}

}  // namespace linerate::plan
