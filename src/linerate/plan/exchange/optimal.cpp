// The exact fusion by dynamic programming. F[j] is when the first j gradients are exchanged. It is
// the least of max(F[i], ready_j) + T(P_j - P_i) over i < j. An example: three gradients of 1 MiB
// get ready at 1, 2 and 3 ms, and T is 2 ms + 1 ms/MiB.
//   F[1] = 1 + 3 = 4 ms
//   F[2] = min(max(4, 2) + 3, 2 + 4) = 6 ms, both in one bucket
//   F[3] = min(max(6, 3) + 3, max(4, 3) + 4, 3 + 5) = 8 ms. Two cuts end then; one bucket is fewer.
//
// The windows make the search linear. Take one straight piece T = alpha + beta S. What follows
// prefix i finishes at alpha + beta P_j + max(F[i] - beta P_i, ready_j - beta P_i). Its key F[i] -
// beta P_i does not depend on j. Of the prefixes that were done before ready_j the longest is best,
// as it leaves least to send. Of the others the smallest key is best. In the example beta is 1 and
// the keys are 0, 4 - 1 = 3 and 6 - 2 = 4. For j = 3 the terms are max(0, 3) = 3, 3 and 4 ms, to
// which 2 + 3 ms are added.
//
// A window holds the prefixes whose rest lies in one piece. As j grows, prefixes enter at its end
// and leave at its begin, each once. So K pieces cost O(L K).
#include "linerate/plan/exchange/fusion.hpp"

#include <algorithm>
#include <cmath>
#include <compare>
#include <numeric>

#include "linerate/core/index.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/cost_curve.hpp"
#include "linerate/doc/option_reader.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {
namespace {

// Times are whole ticks, far shorter than what matters. Sums of straight pieces then come out the
// same wherever they are cut, and ties are ties.
using Ticks = std::int64_t;
constexpr Ticks kFew = 1024;         // more than sums of sizes are off by
constexpr std::size_t kUsual = 256;  // gradients of a network for which memory is taken at once

// When prefix j finishes if its last bucket begins after prefix `from`, and in how many buckets
// `from` is exchanged. Ordered as the result wants it: by time, then by buckets, then by `from`.
struct Cut {
  Ticks finish = 0;
  std::int32_t count = 0, from = 0;

  auto operator<=>(const Cut&) const = default;
};

// The prefixes that leave bytes of one straight piece of T to send. Sizes grow with j, so each
// prefix enters and leaves once.
struct Window {
  // A prefix finishes, with what follows it, max(key, ready - bytes) after a time that is the same
  // for all of them.
  struct Prefix {
    Ticks key = 0, bytes = 0;  // F[i] - T(P_i) without its start-up, and the latter
    std::int32_t from = 0;
  };

  double from_bytes = 0, to_bytes = 0, ticks_per_byte = 0;
  Ticks alpha = 0;
  bool climbs = false;  // more bytes take longer, however few
  // What sending its bytes, or those of a window after it, takes at least.
  Ticks least = 0;
  std::size_t begin = 0, end = 0;
  // If it climbs, the prefixes that may still be best, by index, from `first` on. A longer prefix
  // leaves less to send. So a shorter one may be best only while its key is smaller. Hence keys
  // ascend along the list, and F with them.
  std::vector<Prefix> kept = {};
  std::size_t first = 0;
};

class OptimalSearch {
 public:
  OptimalSearch(const FusionProblem& problem, const cost::CostCurve& cost)
      : problem_(problem),
        finish_(problem.bytes.size() + 1),
        prefix_(finish_.size()),
        chosen_(finish_.size()) {
    std::partial_sum(problem.bytes.begin(), problem.bytes.end(), prefix_.begin() + 1);
    const std::vector<cost::AffinePiece> pieces = cost::affine_pieces(cost, prefix_.back());
    windows_.reserve(pieces.size());
    choose_ticks(pieces);
    const double least =
        problem.bytes.empty() ? 0 : *std::min_element(problem.bytes.begin(), problem.bytes.end());
    for (const cost::AffinePiece& p : pieces)
      windows_.push_back({p.from_bytes, p.to_bytes, p.beta_s_per_byte * ticks_per_s_,
                          ticks(p.alpha_s),
                          p.beta_s_per_byte > 0 && ticks(p.beta_s_per_byte * least) > kFew,
                          ticks(std::min(p.seconds(p.from_bytes), p.seconds(p.to_bytes))) - kFew});
    for (std::size_t w = windows_.size() - 1; w-- > 0;)
      windows_[w].least = std::min(windows_[w].least, windows_[w + 1].least);
    for (Window& w : windows_)
      if (w.climbs) w.kept.reserve(std::min<std::size_t>(problem.bytes.size(), kUsual));
    windows_.front().from_bytes = -1;
    windows_.back().to_bytes = std::numeric_limits<double>::infinity();
  }

  std::vector<std::int32_t> run() {
    for (std::size_t j = 1; j < finish_.size(); ++j) {
      begin(j);
      auto window = windows_.begin();
      while (size(j - 1) > window->to_bytes) ++window;  // all prefixes leave more
      for (; window != windows_.end() && best_.finish >= ready_ + window->least; ++window)
        search(*window);
      finish_[j] = best_.finish;
      chosen_[j] = {best_.count + 1, best_.from};
    }
    return ends();
  }

 private:
  // How a prefix is best exchanged: in how many buckets, and where the last of them begins.
  struct Chosen {
    std::int32_t count = 0, from = 0;
  };

  // The largest number is 2^58 ticks, so no sum reaches 2^62.
  void choose_ticks(const std::vector<cost::AffinePiece>& pieces) {
    double most = problem_.ready_s.empty() ? 0 : std::abs(problem_.ready_s.back());
    for (const cost::AffinePiece& p : pieces)
      most = std::max({most, std::abs(p.alpha_s), std::abs(p.beta_s_per_byte) * prefix_.back()});
    ticks_per_s_ = most > 0 ? std::exp2(58) / most : 1;
  }
  Ticks ticks(double seconds) const { return static_cast<Ticks>(seconds * ticks_per_s_); }
  Ticks bytes_of(const Window& w, std::size_t prefix) const {
    return static_cast<Ticks>(w.ticks_per_byte * prefix_[prefix]);
  }

  // Sets the step to j. `low_` is the first prefix that a bucket up to j may begin after, by dtype
  // and by the cap on sizes.
  void begin(std::size_t j) {
    j_ = j;
    ready_ = ticks(problem_.ready_s[j - 1]);
    best_ = {std::numeric_limits<Ticks>::max(), 0, 0};
    if (!problem_.fence.empty()) low_ = std::max(low_, to_index(problem_.fence[j - 1]));
    while (low_ + 1 < j && prefix_[j] - prefix_[low_] > problem_.cap_bytes) ++low_;
  }

  double size(std::size_t i) const { return prefix_[j_] - prefix_[i]; }

  // Moves the window to j and offers its best prefixes. A piece that is flat or falls has no order
  // of keys, so all its prefixes are tried.
  void search(Window& w) {
    w.begin = std::max(w.begin, low_);
    while (w.begin < j_ && size(w.begin) > w.to_bytes) ++w.begin;
    w.end = std::max(w.begin, w.end);
    for (; w.end < j_ && size(w.end) > w.from_bytes; ++w.end)
      if (w.climbs) keep(w, w.end);
    if (w.begin == w.end) return;
    const Ticks transfer = w.alpha + bytes_of(w, j_);
    if (w.climbs) return search_kept(w, transfer);
    for (std::size_t i = w.begin; i < w.end; ++i)
      consider(i, std::max(finish_[i], ready_) - bytes_of(w, i) + transfer);
  }

  // A prefix enters. Those before it with a larger key leave: it has less to send and is no later.
  // Equal keys go by the number of buckets.
  void keep(Window& w, std::size_t i) const {
    const Ticks bytes = bytes_of(w, i), key = finish_[i] - bytes;
    while (w.first < w.kept.size() &&
           (key < w.kept.back().key ||
            (key == w.kept.back().key && chosen_[i].count < chosen_of(w.kept.back()).count)))
      w.kept.pop_back();
    w.kept.push_back({key, bytes, static_cast<std::int32_t>(i)});
  }

  // The longest prefix that is done before the last gradient is there is best of those that are.
  // The next in the list is best of the others. Prefixes before these two never count again, since
  // ready times never fall.
  void search_kept(Window& w, Ticks transfer) {
    while (w.first < w.kept.size() && index_of(w.kept[w.first]) < w.begin) ++w.first;
    while (w.first + 1 < w.kept.size() && is_early(w.kept[w.first + 1])) ++w.first;
    if (w.first == w.kept.size()) return;
    const Window::Prefix& best = w.kept[w.first];
    if (!is_early(best)) return consider(index_of(best), best.key + transfer);
    consider(index_of(best), ready_ - best.bytes + transfer);
    if (w.first + 1 < w.kept.size())
      consider(index_of(w.kept[w.first + 1]), w.kept[w.first + 1].key + transfer);
  }

  static std::size_t index_of(const Window::Prefix& p) { return to_index(p.from); }
  const Chosen& chosen_of(const Window::Prefix& p) const { return chosen_[index_of(p)]; }
  bool is_early(const Window::Prefix& p) const { return finish_[index_of(p)] <= ready_; }
  void consider(std::size_t i, Ticks finish) {
    if (finish > best_.finish) return;
    best_ = std::min(best_, {finish, chosen_[i].count, static_cast<std::int32_t>(i)});
  }

  std::vector<std::int32_t> ends() const {
    std::vector<std::int32_t> ends;
    for (auto j = static_cast<std::int32_t>(finish_.size()) - 1; j > 0;
         j = chosen_[to_index(j)].from)
      ends.push_back(j);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

  const FusionProblem& problem_;
  std::vector<Ticks> finish_;   // F[i]
  std::vector<double> prefix_;  // P[i]
  std::vector<Chosen> chosen_;
  std::vector<Window> windows_;
  double ticks_per_s_ = 1;
  // The step from i to j_:
  std::size_t j_ = 0, low_ = 0;
  Ticks ready_ = 0;
  Cut best_ = {};
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
    const cost::CostCurve curve = cost::cost_curve(
        input.cost, input.form.gather ? Collective::all_gather : Collective::all_reduce,
        input.ranks, wire);
    std::int32_t begin = 0;
    for (const std::int32_t end :
         optimal_fusion({ready, bytes, fence, cap_bytes_ * scale}, curve)) {
      append_range(input.workload, begin, end, out.graph);
      begin = end;
    }
  }
  std::optional<DType> wire() const override { return wire_; }
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
  std::optional<DType> wire_;
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
