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

/// Until 2020 all-gather and reduce-scatter print what travels, (n-1)/n of the size, as algbw, too.
/// The rows of a run without such an algbw; unchanged if there is none.
std::vector<BandwidthRow> without_travelled(std::vector<BandwidthRow> rows);

/// Whether the algbw printed next to a time follows from it.
bool agrees(const BandwidthRow& row, const Timing& timing, double unit_s);

/// What all rows together leave possible for a test. `believed`: the log names the test, so that
/// its count may be in another convention.
RankRange possible_ranks(Rows rows, const BandwidthTest& test, double unit_s, double blur,
                         bool believed);

}  // namespace linerate::bench_logs
