// Private: the rows of one run of a test of nccl-tests, from whatever format, become samples. What
// was run, and on how many ranks, follows from the rows' own sizes and bandwidths before any title.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/trace/collective_log/collective_sample.hpp"
#include "linerate/trace/collective_log/listed_ranks.hpp"
#include "linerate/trace/collective_log/printed_number.hpp"

namespace linerate::trace {

/// One group of columns: out of place or in place.
struct Timing {
  double time = 0;  // as printed, > 0; 0: none
  Interval time_range;
  std::optional<Interval> algbw, busbw;  // GB/s
  double low = 0, high = 0;              // least and largest repetition as printed, else 0
  bool checked = false;                  // a number stands where others have "N/A"
  double wrong = 0;                      // elements
};

struct BandwidthRow {
  double bytes = 0;
  std::optional<double> count;  // elements
  DType dtype = DType::f32;
  std::optional<bool> reduces, rooted;  // absent: the columns do not say
  Timing timings[2];                    // out of place, in place
};

/// How far a title is to be believed.
enum class TitleStrength { mention, command, statement };

/// The tests of nccl-tests; those without a Collective are known only to be left out.
struct BandwidthTest;
/// By "all_reduce", "alltoall", "sendrecv"...; nullptr for other words.
const BandwidthTest* test_named(std::string_view name);
const BandwidthTest* test_of(Collective collective);
/// "all_reduce_perf" or "all_gather_perf_mpi" anywhere in the text; nullptr where there is none.
const BandwidthTest* test_in(std::string_view text);

struct BandwidthRun {
  std::vector<BandwidthRow> rows;
  ListedRanks listed;
  std::vector<std::pair<TitleStrength, const BandwidthTest*>> titles;
  std::optional<double> unit_s;  // of the times; absent: us or ms, as the bandwidths say
  bool is_of_2017 = false;       // where the bandwidths do not say: that year prints ms
  bool failed = false;           // the footer says that results were out of bounds
};

/// What is gathered over the runs of a log.
struct RunTally {
  std::size_t refused = 0, wrong = 0;
  bool failed = false;
  std::vector<std::string> left_out;  // why, one entry a run or a part of one
};

/// Appends the samples of the run. Rows whose bandwidths contradict their times are refused and
/// counted; a run, or a part of it, that cannot be told apart is left out and named in `tally`.
/// Throws InputError where the caller's options contradict the log.
void add_run(const BandwidthRun& run, const CollectiveLogOptions& options, CollectiveLog& log,
             RunTally& tally);
/// The notes of a whole log. Throws InputError where nothing is left but what was left out.
void finish_runs(const RunTally& tally, CollectiveLog& log);

}  // namespace linerate::trace
