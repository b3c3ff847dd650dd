#include "linerate/plan/optimal.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/plan/exchange.hpp"
#include "linerate/plan/fusion.hpp"
#include "linerate/plan/option_reader.hpp"

namespace linerate::plan {
namespace {

// One straight piece of T, for sizes up to `to_bytes`.
struct Piece {
  double to_bytes, alpha, beta;
};

class Search {
 public:
  Search(const FusionProblem& problem, const cost::CostCurve& cost)
      : problem_(problem), cost_(cost), states_(problem.bytes.size() + 1) {
    for (std::size_t i = 0; i < problem.bytes.size(); ++i)
      states_[i + 1].prefix = states_[i].prefix + problem.bytes[i];
    if (cost.add) split_into_pieces();
  }

  FusionResult run() {
    for (std::size_t j = 1; j < states_.size(); ++j) {
      begin(j);
      if (cost_.fitted) {
        for (std::size_t i = low_; i < j; ++i)
          consider(i, cost_.seconds(states_[j].prefix - states_[i].prefix));
      } else if (cost_.add) {
        search_pieces();
      } else {
        search_line();
      }
      State& state = states_[j];
      state.finish = best_, state.count = best_count_ + 1, state.from = best_from_;
      state.base = best_ - cost_.line.beta_s_per_byte * state.prefix;
    }
    return result();
  }

 private:
  // F[i], P[i], F[i] - beta P[i], the number of buckets that reach it, where the last of them
  // began.
  struct State {
    double finish = 0, prefix = 0, base = 0;
    std::int32_t count = 0, from = 0;
  };

  void begin(std::size_t j) {
    j_ = j;
    ready_ = problem_.ready_s[j - 1];
    best_ = std::numeric_limits<double>::infinity();
    if (!problem_.fence.empty())
      low_ = std::max(low_, static_cast<std::size_t>(problem_.fence[j - 1]));
    while (low_ + 1 < j && states_[j].prefix - states_[low_].prefix > problem_.cap_bytes) ++low_;
    while (behind_ < j && states_[behind_].finish < ready_) ++behind_;
  }

  void consider(std::size_t i, double transfer) {
    const double finish = std::max(states_[i].finish, ready_) + transfer;
    if (finish > best_) return;
    const auto from = static_cast<std::int32_t>(i);
    const std::int32_t count = states_[i].count;
    if (finish == best_ && (count > best_count_ || (count == best_count_ && from >= best_from_)))
      return;
    best_ = finish, best_count_ = count, best_from_ = from;
  }

  void consider_line(std::size_t i) {
    consider(i, cost_.line(states_[j_].prefix - states_[i].prefix));
  }

  // F never decreases when T is a rising line. Prefixes that finish before ready_ differ only in
  // what they leave to send: the longest is best. Of those that finish later, the shortest, k, is:
  // cut the plan of a longer prefix i at k, and F[i] >= F[k] + beta (P_i - P_k) follows, hence
  // F[i] + T(P_j - P_i) >= F[k] + T(P_j - P_k), with no fewer buckets.
  void search_line() {
    const std::size_t later = std::max(behind_, low_);
    if (later < j_) consider_line(later);
    for (std::size_t i = std::min(behind_, j_); i-- > low_;) {
      const double finish = ready_ + cost_.line(states_[j_].prefix - states_[i].prefix);
      if (finish > best_) break;
      consider_line(i);
    }
  }

  void split_into_pieces() {
    double highest = 0;
    least_ = std::numeric_limits<double>::infinity();
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

  // T is no line: T(S) >= least_ + beta S, and where it falls behind its line, measured tables
  // being noisy, it does so by no more than drop_. search_line's argument then holds but for drop_:
  // of the prefixes that finish before ready_ those near the longest may be best, and of the
  // later ones those whose F - beta P is near the least, which comes first.
  void search_pieces() {
    const double end = states_[j_].prefix, beta = cost_.line.beta_s_per_byte;
    const std::size_t later = std::clamp(behind_, low_, j_);
    double margin = drop_ + 1e-12 * std::abs(ready_);  // rounding
    const double shortest = later > low_ ? end - states_[later - 1].prefix : 0;
    const double at_shortest = ready_ + (later > low_ ? cost_.seconds(shortest) : 0);
    for (std::size_t i = later; i-- > low_;) {
      const double size = end - states_[i].prefix;
      if (at_shortest + beta * (size - shortest) - margin > best_) break;
      consider(i, i + 1 == later ? at_shortest - ready_ : cost_.seconds(size));
    }
    if (later == j_) return;
    const double farthest = end - states_[later].prefix;
    auto piece = std::partition_point(pieces_.begin(), pieces_.end(),
                                      [farthest](const Piece& p) { return p.to_bytes < farthest; });
    const double offset = least_ + beta * end - 1e-12 * std::abs(ready_);
    for (std::size_t i = later; i < j_; ++i) {
      const double bound = states_[i].base + offset;
      if (bound > best_ + drop_) break;
      if (bound > best_) continue;
      const double size = end - states_[i].prefix;
      while (piece != pieces_.begin() && size <= std::prev(piece)->to_bytes) --piece;
      consider(i, piece->alpha + piece->beta * size);
    }
  }

  FusionResult result() const {
    FusionResult result{states_.back().finish, {}};
    for (auto j = static_cast<std::int32_t>(states_.size()) - 1; j > 0;
         j = states_[static_cast<std::size_t>(j)].from)
      result.ends.push_back(j);
    std::reverse(result.ends.begin(), result.ends.end());
    return result;
  }

  const FusionProblem& problem_;
  const cost::CostCurve& cost_;
  std::vector<State> states_;
  std::vector<Piece> pieces_;
  double least_ = 0, drop_ = 0;  // of T(S) - beta S: the least, the largest drop as S grows
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
    const double scale = (input.payload.gather ? input.ranks : 1) / input.payload.ratio;
    for (std::size_t l = 0; l < gradients.size(); ++l) {
      ready[l] = gradients[l].ready_s;
      bytes[l] = static_cast<double>(gradients[l].elements *
                                     size_of(input.payload.dtype(gradients[l].dtype))) *
                 scale;
      // Buckets hold one dtype.
      if (l > 0)
        fence[l] = gradients[l].dtype == gradients[l - 1].dtype ? fence[l - 1]
                                                                : static_cast<std::int32_t>(l);
    }
    const DType wire =
        gradients.empty() ? DType::f32 : input.payload.dtype(gradients.front().dtype);
    const cost::CostCurve curve = input.cost.curve(
        input.payload.gather ? Collective::all_gather : Collective::all_reduce, input.ranks, wire);
    std::int32_t begin = 0;
    for (const std::int32_t end :
         optimal_fusion({ready, bytes, fence, cap_bytes_ * scale}, curve).ends) {
      append_range(input.workload, begin, end, out.graph);
      begin = end;
    }
  }
  std::optional<DType> wire() const override { return wire_; }

 private:
  double cap_bytes_;
  std::optional<DType> wire_;
};

}  // namespace

FusionResult optimal_fusion(const FusionProblem& problem, const cost::CostCurve& cost) {
  return Search(problem, cost).run();
}

std::unique_ptr<const Exchange> make_optimal(const doc::Component& component) {
  OptionReader options(component);
  const Bytes cap = options.size("cap", Bytes{std::numeric_limits<std::int64_t>::max()});
  const auto wire = options.wire();
  options.finish();
  return std::make_unique<Optimal>(static_cast<double>(cap.value), wire);
}

}  // namespace linerate::plan
