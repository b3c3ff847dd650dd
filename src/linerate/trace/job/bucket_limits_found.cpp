// Limits are ranges until the end, because many limits give the same buckets. Only the last step
// chooses a number for people (roundest_mib), and prefers those that PyTorch has as defaults.
#include "linerate/trace/job/bucket_limits_found.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace linerate::trace {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kDefaultFirst = 1 * kMiB, kDefaultCap = 25 * kMiB;

/// Narrows a limit by one bucket. The bucket reached its limit with its last tensor, of `last`
/// bytes, and not before. A bucket that the end of the gradients closed may not have reached it.
void narrow(LimitRange& limit, std::int64_t bytes, std::int64_t last, bool at_end) {
  limit.low = std::max(limit.low, bytes - last);
  if (!at_end) limit.high = std::min(limit.high, bytes);
}

/// The number that a person would have typed: 25 before a multiple of 100, of 50, ... of 1.
std::optional<std::int64_t> roundest_mib(const LimitRange& limit) {
  if (limit.holds(kDefaultCap)) return kDefaultCap / kMiB;
  for (const std::int64_t step : {100, 50, 25, 10, 5, 4, 2, 1}) {
    const std::int64_t least = limit.low / (step * kMiB) * step + step;
    if (limit.holds(least * kMiB)) return least;
  }
  return std::nullopt;
}

/// A size between the two measured ends, in the fewest digits.
std::string size_text(const LimitRange& limit) {
  if (const auto mib = roundest_mib(limit)) return fmt::format("{}MiB", *mib);
  for (std::int64_t unit = 1 << 19; unit > 1; unit /= 2)
    if (const std::int64_t least = limit.low / unit * unit + unit; limit.holds(least))
      return least % 1024 == 0 ? fmt::format("{}KiB", least / 1024) : fmt::format("{}B", least);
  return fmt::format("{}B", limit.low + 1);
}

}  // namespace

/// One walk over both lists is enough. Sizes are above 0, so a sum that passes the exchange's size
/// without meeting it cannot come back, and the exchange is no bucket. A foreign exchange of just
/// the right size is taken for one: nothing here tells them apart.
std::optional<LimitRanges> limits_of(std::span<const std::int64_t> gradients,
                                     std::span<const std::int64_t> exchanged,
                                     std::vector<std::size_t>& kept) {
  LimitRanges limits;
  kept.clear();
  std::size_t next = 0;  // gradient
  for (std::size_t i = 0; i < exchanged.size() && next < gradients.size(); ++i) {
    std::int64_t sum = 0;
    std::size_t end = next;
    while (end < gradients.size() && sum < exchanged[i]) sum += gradients[end++];
    if (sum != exchanged[i] || end == next) continue;
    narrow(kept.empty() ? limits.first : limits.rest, sum, gradients[end - 1],
           end == gradients.size());
    kept.push_back(i);
    next = end;
  }
  if (next < gradients.size() || kept.empty()) return std::nullopt;
  return limits;
}

std::optional<std::string> ddp_options(const LimitRanges& limits) {
  const auto& [first, rest] = limits;
  if (first.empty() || rest.empty()) return std::nullopt;
  if (first.holds(kDefaultFirst) && rest.holds(kDefaultCap)) return "";
  const LimitRange both{std::max(first.low, rest.low), std::min(first.high, rest.high)};
  if (!both.empty())
    if (const auto mib = roundest_mib(both)) return fmt::format("bucket_cap_mb={}", *mib);
  const std::string bucket = size_text(rest);
  if (first.holds(kDefaultFirst)) return fmt::format("bucket={}", bucket);
  return fmt::format("bucket={}, first={}", both.empty() ? bucket : size_text(both),
                     both.empty() ? size_text(first) : size_text(both));
}

}  // namespace linerate::trace
