// Private: the rows of one run of a test of nccl-tests, from whatever format, become samples. What
// was run, and on how many ranks, follows from the rows' own sizes and bandwidths before any title.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/bench_logs/bandwidth_rows.hpp"
#include "linerate/bench_logs/collective_log.hpp"

namespace linerate::bench_logs {

/// What is gathered over the runs of a log.
struct RunTally {
  std::size_t refused = 0, wrong = 0;
  std::string first_refused;  // line number and text of the first row that could not be read
  bool failed = false;
  std::vector<std::string> left_out;  // why, one entry a run or a part of one

  void refuse(std::size_t line_number, std::string_view line);
};

/// Appends the samples of the run. Rows whose bandwidths contradict their times are refused and
/// counted; a run, or a part of it, that cannot be told apart is left out and named in `tally`.
/// Throws InputError where the caller's options contradict the log.
void add_run(BandwidthRun run, const CollectiveLogOptions& options, CollectiveLog& log,
             RunTally& tally);
/// The notes of a whole log. Throws InputError where nothing is left but what was left out.
void finish_runs(const RunTally& tally, CollectiveLog& log);

}  // namespace linerate::bench_logs
