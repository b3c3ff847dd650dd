#include "linerate/cost/outliers.hpp"

#include <fmt/format.h>

#include "linerate/core/text.hpp"
#include "linerate/cost/model_curve.hpp"

namespace linerate::cost {
// Compares every sample with the price of its own size, ranks and collective. A table that does not
// answer for its own ranks is left out: another type's or another placement's does.
std::vector<std::string> outlier_notes(const CostModel& model) {
  constexpr std::size_t kMostNamed = 3;
  const CostModel measured = model.with({});
  std::vector<std::string> named;
  std::size_t more = 0;
  for (const doc::CollectiveCost& table : model.cluster().collectives) {
    if (table.ranks < 2 || !measured.can_price(table.collective, table.ranks)) continue;
    const CostCurve curve = cost_curve(measured, table.collective, table.ranks, table.dtype);
    if (!curve.fitted || &curve.fitted.law().table() != &table) continue;  // another one answers
    for (const auto& [bytes, seconds, low_s, high_s] : table.samples) {
      const double price = curve.seconds(bytes), tolerance = tolerance_at(bytes);
      if (seconds <= tolerance * price && price <= tolerance * seconds) continue;
      if (named.size() == kMostNamed)
        ++more;
      else
        named.push_back(
            fmt::format("{}{} of {} on {} ranks, {} against {}",
                        table.dtype == DType::f32 ? "" : fmt::format("{} ", name_of(table.dtype)),
                        name_of(table.collective), format_size(bytes), table.ranks,
                        format_time(seconds), format_time(price)));
    }
  }
  if (named.empty()) return {};
  return {
      fmt::format("Outliers: measured times far from their price, which follows the sizes, rank "
                  "counts and collectives next to them: {}{}.",
                  join(named, "; "), more > 0 ? fmt::format("; and {} more", more) : "")};
}

}  // namespace linerate::cost
