// Printed bandwidths tell the number of ranks. busbw = algbw * factor, and the factor depends on n:
// 2 (n-1)/n for all-reduce, (n-1)/n for gathers and scatters (nccl-tests, doc/PERFORMANCE.md).
// Printed numbers are rounded, so each stands for an interval, and so does n.
//
// Example. "1.00" and "1.97" stand for 0.995 to 1.005 and 1.965 to 1.975. Their ratio is 1.955 to
// 1.985, which all-reduce has on 45 to 132 ranks. Another row has 100.00 and 196.88. Its ratio is
// 1.9687 to 1.9689, for which only 64 ranks are left. Rows of one run intersect, so the best row
// decides.
//
// Sizes tell it, too. All-gather prints the elements of one rank's piece as count. A size of 16 MiB
// with a count of 1,048,576 floats is four pieces, so four ranks.
#include "linerate/bench_logs/possible_ranks.hpp"

#include <cmath>

#include "linerate/core/dtype.hpp"

namespace linerate::bench_logs {
namespace {

/// The whole n >= 2 whose factor lies in `ratio`. limit * (n-1)/n = r gives n = limit / (limit -
/// r). A ratio at the limit leaves n without an upper bound.
RankRange ranks_of(BusFactor factor, const Interval& ratio) {
  if (factor == BusFactor::one) return ratio.holds(1) ? RankRange{} : kNoRanks;
  const double limit = factor == BusFactor::twice ? 2 : 1;  // limit * (n-1)/n
  const auto ranks_at = [limit](double r) { return limit / (limit - r); };
  RankRange range;
  if (ratio.low >= limit) return kNoRanks;
  if (ratio.high < limit / 2) return kNoRanks;  // 2 ranks have the least
  // Whole numbers on the border are not lost to binary rounding.
  range.low = std::max(2.0, std::ceil(ranks_at(ratio.low) * (1 - 1e-12)));
  if (ratio.high < limit) range.high = std::floor(ranks_at(ratio.high) * (1 + 1e-12));
  return range;
}

/// Bytes a second that size and time say, in GB/s.
Interval algbw_by_time(const BandwidthRow& row, const Timing& t, double unit_s) {
  const double gb = row.bytes * 1e-9 / unit_s;
  return Interval{gb, gb}.over(t.time_range);
}

// Both come from one measured time; printed digits are all that may differ.
constexpr double kSlack = 0.005;

Interval widened(const Interval& range, double times) {
  const double middle = (range.low + range.high) / 2, half = times * (range.high - range.low) / 2;
  return {std::max(0.0, middle - half), middle + half};
}

/// busbw / algbw over both groups; `blur` multiplies what rounding leaves.
Interval ratio_of(const BandwidthRow& row, double unit_s, double blur) {
  Interval ratio;
  for (const Timing& t : row.timings) {
    if (t.time <= 0 || !t.busbw || t.busbw->high <= 0) continue;
    const Interval timed = algbw_by_time(row, t, unit_s);
    Interval algbw = t.algbw ? t.algbw->with(timed) : timed;
    if (algbw.empty()) algbw = *t.algbw;
    ratio = ratio.with(widened(*t.busbw, blur).over(widened(algbw, blur)));
  }
  return ratio;
}

/// How many pieces of `count` elements the size holds, if that is a whole number.
std::optional<double> pieces_of(const BandwidthRow& row) {
  if (row.count.value_or(0) <= 0) return std::nullopt;
  const double pieces = row.bytes / (*row.count * static_cast<double>(size_of(row.dtype)));
  return pieces >= 1 && pieces == std::floor(pieces) ? std::optional(pieces) : std::nullopt;
}

bool same(const Timing& t) {
  return t.time <= 0 || (t.algbw && t.busbw && t.algbw->low == t.busbw->low);
}

}  // namespace

std::vector<BandwidthRow> without_travelled(std::vector<BandwidthRow> rows) {
  const bool travelled = std::all_of(rows.begin(), rows.end(), [](const BandwidthRow& row) {
    return pieces_of(row).value_or(1) > 1 && same(row.timings[0]) && same(row.timings[1]);
  });
  if (travelled)
    for (BandwidthRow& row : rows) {
      row.timings[0].algbw = row.timings[1].algbw = std::nullopt;
      row.travelled = true;
    }
  return rows;
}

bool agrees(const BandwidthRow& row, const Timing& t, double unit_s) {
  const Interval said = *t.algbw, timed = algbw_by_time(row, t, unit_s);
  return timed.low <= said.high * (1 + kSlack) && said.low <= timed.high * (1 + kSlack);
}

/// A row can exclude the test by its operation or root, or by a count that the test does not print.
/// It also excludes the test if no n gives its ratio. What all rows allow is intersected.
RankRange possible_ranks(Rows rows, const BandwidthTest& test, double unit_s, double blur,
                         bool believed) {
  Interval ratio;
  RankRange range;
  for (const BandwidthRow& row : rows) {
    if (row.reduces && test.reduces && *row.reduces != *test.reduces) return kNoRanks;
    if (row.rooted.value_or(test.rooted) != test.rooted) return kNoRanks;
    // Since "none" is printed only tests that no training step uses count what travels.
    if (row.travelled && row.none && test.collective) return kNoRanks;
    const auto pieces = pieces_of(row);
    if (pieces && *pieces > 1) {
      if (!test.splits) return kNoRanks;
      range = range.with({*pieces, *pieces});
    } else if (pieces && test.splits && !believed) {
      return kNoRanks;
    }
    ratio = ratio.with(ratio_of(row, unit_s, blur));
  }
  return ratio.empty() ? kNoRanks : range.with(ranks_of(test.factor, ratio));
}

}  // namespace linerate::bench_logs
