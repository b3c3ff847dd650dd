#include "linerate/plan/optimal.hpp"

#include <algorithm>

#include "linerate/plan/exchange.hpp"
#include "linerate/plan/fusion.hpp"
#include "linerate/plan/option_reader.hpp"

namespace linerate::plan {
namespace {

// One straight piece of T, for sizes up to `to_bytes`.
struct Piece {
  double to_bytes, alpha, beta;
  std::size_t first;  // first i with P[j] - P[i] <= to_bytes; never moves back as j grows
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
      states_[j].finish = best_, states_[j].count = best_count_ + 1, states_[j].from = best_from_;
    }
    return result();
  }

 private:
  // F[i], the number of buckets that reach it, where the last of them began, P[i].
  struct State {
    double finish = 0, prefix = 0;
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
    least_ = std::numeric_limits<double>::infinity();
    for (const cost::AddTable::Piece& p : cost_.add->pieces()) {
      const double alpha = cost_.line.alpha_s + cost_.add_steps * p.intercept;
      const double slope = cost_.add_steps * p.slope * cost_.add_share;
      const double to = p.to_bytes / cost_.add_share;
      pieces_.push_back({to, alpha, cost_.line.beta_s_per_byte + slope, 0});
      // Where the pieces meet, T - beta S is least: it is straight between.
      if (to < std::numeric_limits<double>::infinity())
        least_ = std::min(least_, alpha + slope * to);
      else
        least_ = std::min(least_, alpha);
    }
  }

  // T is no line, yet never below least_ + beta S: that bounds how far back a bucket may begin.
  void search_pieces() {
    const double end = states_[j_].prefix;
    for (const std::size_t i : {std::max(behind_, low_), std::max(behind_, low_ + 1) - 1, j_ - 1})
      if (i < j_) consider(i, cost_.seconds(end - states_[i].prefix));
    std::size_t i = first_worth_trying();
    for (std::size_t p = pieces_.size(); p-- > 0 && i < j_;) {
      std::size_t stop = j_;
      if (p > 0) {
        Piece& smaller = pieces_[p - 1];
        while (smaller.first < j_ && end - states_[smaller.first].prefix > smaller.to_bytes)
          ++smaller.first;
        stop = smaller.first;
      }
      const double alpha = pieces_[p].alpha, slope = pieces_[p].beta, ready = ready_;
      const State* const states = states_.data();
      double best = best_;
      for (; i < stop; ++i) {
        const double transfer = alpha + slope * (end - states[i].prefix);
        if (std::max(states[i].finish, ready) + transfer > best) [[likely]]
          continue;
        consider(i, transfer);
        best = best_;
      }
    }
  }

  // The first i with ready_ + least_ + beta (P_j - P_i) <= best_.
  std::size_t first_worth_trying() const {
    const double beta = cost_.line.beta_s_per_byte;
    if (!(beta > 0)) return low_;
    const double reach = (best_ - ready_ - least_) / beta * (1 + 1e-9);
    const double from = states_[j_].prefix - reach;
    const auto found =
        std::lower_bound(states_.begin() + static_cast<std::ptrdiff_t>(low_),
                         states_.begin() + static_cast<std::ptrdiff_t>(j_), from,
                         [](const State& state, double prefix) { return state.prefix < prefix; });
    return static_cast<std::size_t>(found - states_.begin());
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
  double least_ = 0;  // of T(S) - beta S
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
