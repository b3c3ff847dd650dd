#include "linerate/cost/outliers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include "linerate/core/text.hpp"
#include "linerate/cost/model_curve.hpp"

namespace linerate::cost {
namespace {

/// What a measurement may be at least and at most, as others say.
struct Bounds {
  double least = 0, most = INFINITY;

  void add_least(double seconds) { least = std::max(least, seconds); }
  void add_most(double seconds) { most = std::min(most, seconds); }
};

/// Prices of other rank counts and collectives that bound a table's.
class Neighbours {
 public:
  Neighbours(const CostModel& model, const doc::CollectiveCost& table)
      : collective_(table.collective) {
    const auto curve_of = [&](Collective what, int ranks) {
      return model.can_price(what, ranks)
                 ? std::optional(cost_curve(model, what, ranks, table.dtype))
                 : std::nullopt;
    };
    std::set<int> counts{table.ranks};
    for (const doc::CollectiveCost& other : model.cluster().collectives)
      if (other.collective == collective_ && other.ranks > 1) counts.insert(other.ranks);
    const auto here = counts.find(table.ranks);
    if (here != counts.begin()) fewer_ = curve_of(collective_, *std::prev(here));
    if (std::next(here) != counts.end()) more_ = curve_of(collective_, *std::next(here));
    whole_ = curve_of(Collective::all_reduce, table.ranks);
    scatter_ = curve_of(Collective::reduce_scatter, table.ranks);
    gather_ = curve_of(Collective::all_gather, table.ranks);
  }

  Bounds bounds_at(double bytes) const {
    Bounds bounds;
    if (fewer_) bounds.add_least(fewer_->seconds(bytes));
    if (more_) bounds.add_most(more_->seconds(bytes));
    if (!whole_ || !scatter_ || !gather_) return bounds;
    const bool is_half =
        collective_ == Collective::reduce_scatter || collective_ == Collective::all_gather;
    const bool is_made = whole_->is_made_of_halves(bytes);
    if (is_half && is_made) bounds.add_most(whole_->seconds(bytes));
    if (collective_ != Collective::all_reduce) return bounds;
    const double a = scatter_->seconds(bytes), b = gather_->seconds(bytes);
    if (is_made) bounds.add_least(std::max(a, b));
    bounds.add_most(a + b);
    return bounds;
  }

 private:
  Collective collective_;
  std::optional<CostCurve> fewer_, more_;  // ranks
  std::optional<CostCurve> whole_, scatter_, gather_;
};

}  // namespace

std::vector<std::string> outlier_notes(const CostModel& model) {
  constexpr std::size_t kMostNamed = 3;
  const CostModel measured = model.with({});
  std::vector<std::string> named;
  std::size_t more = 0;
  for (const doc::CollectiveCost& table : model.cluster().collectives) {
    if (table.ranks < 2 || !measured.can_price(table.collective, table.ranks)) continue;
    const CostCurve curve = cost_curve(measured, table.collective, table.ranks, table.dtype);
    if (!curve.fitted || &curve.fitted.law().table() != &table) continue;  // another one answers
    const Neighbours neighbours(measured, table);
    for (std::size_t i = 0; i < table.samples.size(); ++i) {
      const auto& [bytes, seconds, low_s, high_s] = table.samples[i];
      Bounds bounds = neighbours.bounds_at(bytes);
      if (i > 0) bounds.add_least(curve.seconds(table.samples[i - 1].bytes));
      if (i + 1 < table.samples.size()) bounds.add_most(curve.seconds(table.samples[i + 1].bytes));
      const double tolerance = tolerance_at(bytes);
      if (seconds <= tolerance * bounds.most && bounds.least <= tolerance * seconds) continue;
      if (named.size() == kMostNamed)
        ++more;
      else
        named.push_back(
            fmt::format("{}{} of {} on {} ranks, {} against {}",
                        table.dtype == DType::f32 ? "" : fmt::format("{} ", name_of(table.dtype)),
                        name_of(table.collective), format_size(bytes), table.ranks,
                        format_time(seconds), format_time(curve.seconds(bytes))));
    }
  }
  if (named.empty()) return {};
  return {
      fmt::format("Outliers, measured against their price, which follows the sizes, rank counts "
                  "and collectives next to them: {}{}.",
                  join(named, "; "), more > 0 ? fmt::format("; and {} more", more) : "")};
}

}  // namespace linerate::cost
