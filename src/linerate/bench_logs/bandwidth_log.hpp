// Private: on how many ranks a test can have printed rows, from their sizes, times and bandwidths.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/bench_logs/collective_sample.hpp"
#include "linerate/bench_logs/columns.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/dtype.hpp"

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

// Private: which test of nccl-tests printed the rows of a run, and on how many ranks. A log may
// have lost its title, have a wrong one, or have those of several runs. Rows cannot lie as easily,
// since their bandwidths were computed with the true test and the true number of ranks.

/// Thrown inside this module: why readable rows of a log are not used.
struct RowsNotUsed {
  std::string why;
};

/// A test that can have printed all of the rows, and on how many ranks.
struct PossibleTest {
  const BandwidthTest* test;
  RankRange ranks;
};

/// One run, or an ascending stretch of one, under judgement. Borrows all three.
class Judge {
 public:
  Judge(const BandwidthRun& run, Rows rows, double unit_s, const CollectiveLogOptions& options);

  bool has_candidates() const { return !candidates_.empty(); }
  /// Throws RowsNotUsed if rows and titles leave none or several tests, or one without a
  /// Collective.
  const PossibleTest& decide() const;

 private:
  bool is_named(const BandwidthTest& test) const;
  const PossibleTest* candidate_of(const BandwidthTest* test) const;
  const PossibleTest* asked_for() const;
  const PossibleTest* titled() const;
  const PossibleTest* by_rows() const;
  std::string impossible() const;

  const BandwidthRun& run_;
  Rows rows_;
  const CollectiveLogOptions& options_;
  std::vector<PossibleTest> candidates_;
};

// Private: the rows of a log of nccl-tests, from whatever format, become samples. What was run, and
// on how many ranks, follows from the rows' own sizes and bandwidths before any title.

/// A log while its runs are read, one after the other. The caller adds runs and refused rows, and
/// takes the log at the end.
class BandwidthLog {
 public:
  BandwidthLog(std::string source, std::string format, const CollectiveLogOptions& options)
      : options_(options), log_{.source = std::move(source), .format = std::move(format)} {}

  const std::string& source() const { return log_.source; }
  const CollectiveLogOptions& options() const { return options_; }
  void note(const std::string& text) { log_.note(text); }
  void note_once(const std::string& text) {
    if (said_.insert(text).second) note(text);
  }
  /// Counts a row that could not be read; the message quotes the first `where`, quoted_line(), and
  /// says why it was, if that is known.
  void refuse(const std::string& where, const std::string& why = "");
  /// Rows whose bandwidths contradict their times are refused; an ambiguous run, or part of one, is
  /// left out with a note. Throws InputError if the caller's options contradict the log.
  void add(BandwidthRun run);
  /// Throws InputError if everything was left out.
  CollectiveLog finish();

 private:
  void check_collective(const BandwidthRun& run) const;
  std::vector<BandwidthRow> sound_rows(const BandwidthRun& run, double unit_s);
  void add_stretch(const BandwidthRun& run, Rows rows, const Judge& judge, double unit_s);
  int settled_ranks(const BandwidthRun& run, const RankRange& possible);
  void note_other_title(const BandwidthRun& run, const BandwidthTest& test);

  CollectiveLogOptions options_;
  CollectiveLog log_;
  std::size_t refused_ = 0, wrong_ = 0;  // rows
  std::string first_refused_;
  bool failed_ = false;
  std::set<std::string> said_;
  std::vector<std::string> left_out_;  // why, one entry a run or a part of one
};

}  // namespace linerate::bench_logs
