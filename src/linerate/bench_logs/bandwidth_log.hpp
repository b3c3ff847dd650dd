// Private: the rows of a log of nccl-tests, from whatever format, become samples. What was run, and
// on how many ranks, follows from the rows' own sizes and bandwidths before any title.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/bench_logs/bandwidth_judge.hpp"
#include "linerate/bench_logs/bandwidth_rows.hpp"
#include "linerate/bench_logs/collective_sample.hpp"

namespace linerate::bench_logs {

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
