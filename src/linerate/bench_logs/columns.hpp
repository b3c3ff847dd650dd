// Private: the cells of one line of a log or table, and what its columns are by the words of its
// header.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::bench_logs {

using Cells = std::vector<std::string>;

/// Cells between separators outside quotes and parentheses, without their quotes and the blanks
/// around them; '\0': words. The empty cells outside "| a | b |" are none.
Cells cells_of(std::string_view line, char separator);
/// Empty if the column is absent (-1).
const std::string& cell_at(const Cells& cells, int column);
std::optional<double> number_at(const Cells& cells, int column);

/// Column numbers, -1 if absent.
struct TimingColumns {
  int time = -1, algbw = -1, busbw = -1, wrong = -1, low = -1, high = -1;
};

struct Columns {
  int bytes = -1, count = -1, dtype = -1, redop = -1, root = -1;
  int ranks = -1, nodes = -1, ranks_per_node = -1, gpus_per_rank = -1, collective = -1,
      in_place = -1;
  TimingColumns timings[2];           // out of place, in place
  double bytes_unit = 1;              // bytes
  std::optional<double> time_unit_s;  // absent: the header does not say
  std::size_t cells = 0;
  std::size_t named = 0;  // cells that the header's words explain
  char separator = '\0';  // '\0': blanks

  bool known() const { return bytes >= 0 && (timings[0].time >= 0 || timings[1].time >= 0); }
};

/// Any order, any case: "size(B)", "bytes", "msg_size"; "seconds", "time_us", "latency(ms)",
/// "oop_time"; "algbw", "busbw"; "ranks", "gpus", "ranksPerNode"; "collective", "name", "inPlace".
/// Nothing if units differ within one kind of column.
Columns columns_of_titles(const Cells& titles);
/// Separated by ',', ';', '|', tabs or blanks. Not known() if size or time is missing.
Columns columns_of_header(std::string_view line);
/// Without a header: bytes,seconds[,ranks[,collective[,type]]]. Not known() for anything else.
Columns columns_of_plain_row(std::string_view line);

// Private: decimals of a log, and what they may have been before they were rounded.

/// low <= x <= high; the default holds every number from 0.
struct Interval {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();

  bool empty() const { return low > high; }
  bool holds(double x) const { return low <= x && x <= high; }
  Interval with(const Interval& other) const;
  /// The quotients of positive numbers.
  Interval over(const Interval& divisor) const;
};

struct Printed {
  double value = 0;
  Interval range;  // half a unit of its last digit either way, never below 0
};

/// "12.50" stands for 12.495 to 12.505, "1.2e+02" for 115 to 125, "2200" for 2150 to 2250: its
/// zeros may be digits that were cut. nullopt for other words.
std::optional<Printed> printed_number(std::string_view word);

// Private: the tests of nccl-tests, by name and by what their rows look like.

/// busbw = algbw * factor (nccl-tests, doc/PERFORMANCE.md): 2(n-1)/n, (n-1)/n, or 1.
enum class BusFactor : std::uint8_t { twice, once, one };

/// What the rows of a test look like. Tests without a Collective are listed so that their rows are
/// recognised and left out, and not taken for those of another test.
struct BandwidthTest {
  std::string_view name;
  std::optional<Collective> collective;
  std::optional<bool> reduces;  // absent: some versions print an operation
  bool rooted;
  bool splits;  // `count` is one rank's piece: size / (count * element) = n
  BusFactor factor;
  bool checks_in_place = true;  // false: "N/A" next to a number out of place
};

std::span<const BandwidthTest> bandwidth_tests();
/// By "all_reduce", "alltoall", "sendrecv"...; nullptr for other words.
const BandwidthTest* test_named(std::string_view name);
const BandwidthTest* test_of(Collective collective);
/// "all_reduce_perf" or "all_gather_perf_mpi" anywhere in the text; nullptr if there is none.
const BandwidthTest* test_in(std::string_view text);

// Private: the rows of one run of a test of nccl-tests, as they were printed, in whatever format.

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
