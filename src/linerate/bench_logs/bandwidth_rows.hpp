// Private: the rows of one run of a test of nccl-tests, as they were printed, in whatever format.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "linerate/bench_logs/bandwidth_tests.hpp"
#include "linerate/bench_logs/columns.hpp"
#include "linerate/bench_logs/listed_ranks.hpp"
#include "linerate/bench_logs/printed_number.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::bench_logs {

/// One group of columns: out of place or in place. Intervals are what the printed numbers may have
/// been.
struct Timing {
  double time = 0;  // as printed, > 0; 0: none
  Interval time_range;
  std::optional<Interval> algbw, busbw;  // GB/s
  double low = 0, high = 0;              // least and largest repetition as printed, else 0
  std::optional<bool> checked;           // a number; false: "N/A"; absent: no such column
  double wrong = 0;                      // elements
};

/// One row as printed; `bytes` is the size column in bytes, in the log's own convention.
struct BandwidthRow {
  double bytes = 0;
  std::optional<double> count;  // elements
  DType dtype = DType::f32;
  bool says_type = true;
  std::optional<bool> reduces, rooted;  // absent: the columns do not say
  bool none = false;                    // the operation's column says "none"
  bool travelled = false;               // algbw was what travels: without_travelled()
  Timing timings[2];                    // out of place, in place
};

/// nullopt if size or type cannot be read. Both times of a row that was not timed are 0.
std::optional<BandwidthRow> row_of(const Cells& cells, const Columns& columns);

/// How credible a title is.
enum class TitleStrength { mention, command, statement };

/// The rows between two headers, with what the log says about them: listed ranks, and titles in the
/// order in which they came.
struct BandwidthRun {
  std::vector<BandwidthRow> rows;
  ListedRanks listed;
  std::vector<std::pair<TitleStrength, const BandwidthTest*>> titles;
  std::optional<double> unit_s;  // of the times; absent: us or ms, as the bandwidths say
  bool is_of_2017 = false;       // if the bandwidths do not say: that year prints ms
  bool failed = false;           // the footer says that results were out of bounds
};

}  // namespace linerate::bench_logs
