// Private: on how many ranks a test can have printed rows, from their sizes, times and bandwidths.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "linerate/bench_logs/bandwidth_rows.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/collective.hpp"

namespace linerate::bench_logs {

using Rows = std::span<const BandwidthRow>;

/// Rank counts that something leaves possible.
struct RankRange {
  double low = 2, high = kMostRanks;

  bool empty() const { return low > high; }
  bool holds(double n) const { return low <= n && n <= high; }
  bool single() const { return low == high; }
  RankRange with(const RankRange& other) const {
    return {std::max(low, other.low), std::min(high, other.high)};
  }
  std::string text() const {
    if (single()) return fmt::format("{:g}", low);
    return high < kMostRanks ? fmt::format("{:g} to {:g}", low, high)
                             : fmt::format("{:g} or more", low);
  }
};
inline constexpr RankRange kNoRanks{1, 0};

/// The rows without an algbw that is no algbw. Until 2020 all-gather and reduce-scatter print the
/// bytes that travel, (n-1)/n of the size, as algbw too. The sign is that both bandwidths are equal
/// in every row of several pieces. Other runs are returned unchanged.
std::vector<BandwidthRow> without_travelled(std::vector<BandwidthRow> rows);

/// Whether the algbw printed next to a time follows from size and time, within their printed digits
/// and half a percent.
bool agrees(const BandwidthRow& row, const Timing& timing, double unit_s);

/// The numbers of ranks that all rows together leave possible for a test. `blur` multiplies what
/// rounding leaves. `believed`: the log names the test, so its count may be in another convention.
RankRange possible_ranks(Rows rows, const BandwidthTest& test, double unit_s, double blur,
                         bool believed);

}  // namespace linerate::bench_logs
