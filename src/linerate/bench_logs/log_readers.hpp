// Private: logs of collective benchmarks and tables of one's own timings become rows of
// (collective, ranks, dtype, bytes, seconds). The readers know nccl-tests of every era as text and
// JSON, OSU micro-benchmarks, and the summary of DeepSpeed's logger. Sizes of all formats are
// converted to one convention, S of core/dtype.hpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/bench_logs/collective_sample.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/trace/input/input_file.hpp"

namespace linerate::bench_logs {

/// By the first bytes (InputFile::head).
bool is_collective_log(std::string_view head);
/// Throws InputError if no row can be read, or if --ranks contradicts the log. It also throws if a
/// size is one rank's part and the number of ranks is unknown.
CollectiveLog read_collective_log(trace::InputFile& input,
                                  const CollectiveLogOptions& options = {});
CollectiveLog load_collective_log(const std::filesystem::path& path,
                                  const CollectiveLogOptions& options = {});

/// The line with plain blanks for non-breaking ones (U+00A0).
std::string plain_blanks(std::string_view line);

/// A format of logs: how its head looks, and what reads it.
struct LogFormat {
  bool (*matches)(std::string_view head);
  CollectiveLog (*read)(trace::InputFile&, const CollectiveLogOptions&);
};
extern const LogFormat kNcclTests, kNcclTestsJson, kRcclTestsJson, kOsu;
extern const LogFormat kDeepSpeed;  // the summary of its communication logger
/// A header that names sizes and times, with separators, or the summary of Gaudi's hccl_demo.
extern const LogFormat kTable;
/// A table with blanks, or without a header: "bytes,seconds". Other files may look like it, so only
/// files that are given as measured times are asked.
extern const LogFormat kPlainTable;
/// By a reader of lines.
template <typename Reader>
CollectiveLog read_lines(trace::InputFile& input, const CollectiveLogOptions& options) {
  Reader reader(input.name(), options);
  for (std::string_view line; input.next_line(line);)
    reader.line(plain_blanks(line), input.line_number());
  return reader.finish();
}

// What launchers, schedulers and log collectors write before the lines of a program.

/// The line without its labels, however many. Labels are "[1,0]<stdout>:" (mpirun), "0: " (srun
/// -l), "[0] " (hydra), "(head, rank=0, pid=7) " (Ray), "node1: " (pdsh) and "name-1 | " (compose).
/// Time stamps are labels, too, and so are the words between a time stamp and a name with a colon.
/// A number is never taken for a label, since it may be the first cell of a row.
std::string_view without_label(std::string_view line);
/// Launchers that label every write of a program label the parts of a row, too: "[0] 1024 256
/// float[0] 12.5". The line without its label, and with a blank for each repetition of it in
/// brackets.
std::string without_repeated_label(std::string_view line);

// The words and conventions that logs of collective benchmarks share.

/// Lower case without the marks that differ between spellings: '_', '-' and blanks.
std::string plain_word(std::string_view text);
std::vector<std::string_view> words_of(std::string_view line);
inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
/// Takes off the first line of a text. Without its line end.
std::string_view take_line(std::string_view& text);
/// Whether the word is one of `names`, which single blanks divide.
bool is_among(std::string_view word, std::string_view names);
std::string replaced(std::string_view text, std::string_view what, std::string_view with);
/// For messages: without control characters and blanks in a row, cut at 80 characters.
std::string shortened(std::string_view line);
/// The whole word as a number; "1.2e+06" and "12.00" included, "N/A" and "nan" not.
std::optional<double> number_of(std::string_view word);
/// The whole word as a whole number that is `least` or more and no more than kMostRanks.
std::optional<int> count_of(std::string_view word, double least);
/// "float", "ncclFloat32", "MPI_CHAR", "half", "bfloat16", "Float" ... nullopt when unknown.
std::optional<DType> dtype_of_log(std::string_view name);

// Private: the rows of a log with what its header and its lines say about them, and the log that
// they become. What was run, and on how many ranks, follows from the rows' own sizes and bandwidths
// before any title.

// The cells of one line, and what its columns are by the words of its header.

using Cells = std::vector<std::string>;

/// Cells between separators outside quotes and parentheses, without their quotes and the blanks
/// around them; '\0': words. The empty cells outside "| a | b |" are none.
Cells cells_of(std::string_view line, char separator);

struct Columns {
  /// By what a column holds, the first word of its names in columns.cpp, and by its group: times
  /// out of place are 0, those in place 1, and so are their bandwidths. All else is 0.
  std::map<std::pair<std::string_view, int>, std::size_t> places;
  double bytes_unit = 1;              // bytes
  std::optional<double> time_unit_s;  // absent: the header does not say
  std::size_t cells = 0;
  std::size_t named = 0;  // cells that the header's words explain
  char separator = '\0';  // '\0': blanks

  bool has(std::string_view column, int group) const { return places.contains({column, group}); }
  bool has(std::string_view column) const { return has(column, 0) || has(column, 1); }
  bool known() const { return has("bytes") && has("time"); }
  /// Empty if the column is absent.
  const std::string& cell(const Cells& line, std::string_view column, int group = 0) const;
};

/// Any order, any case: "size(B)", "bytes", "msg_size"; "seconds", "time_us", "latency(ms)",
/// "oop_time"; "algbw", "busbw"; "ranks", "gpus", "ranksPerNode"; "collective", "name", "inPlace".
/// Nothing if units differ within one kind of column.
Columns columns_of_titles(std::span<const std::string> titles);
/// Separated by ',', ';', '|', tabs or blanks. Not known() if size or time is missing.
Columns columns_of_header(std::string_view line);
/// Takes the units of a line below the header, "(B)  (elements)  (us)"; false: it is no such line.
bool take_units(std::string_view line, Columns& columns);
/// The titles that a row without a header has, in this order: two or more of them.
inline const Cells kPlainTitles = {"bytes", "seconds", "ranks", "collective", "type"};
/// Without a header: bytes,seconds[,ranks[,collective[,type]]]. Not known() for anything else.
Columns columns_of_plain_row(std::string_view line);

// Decimals of a log, and what they may have been before they were rounded.

/// low <= x <= high; the default holds every number from 0.
struct Interval {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();

  bool empty() const { return low > high; }
  bool single() const { return low == high; }
  bool holds(double x) const { return low <= x && x <= high; }
  Interval with(const Interval& other) const {
    return {std::max(low, other.low), std::min(high, other.high)};
  }
  /// The quotients of positive numbers.
  Interval over(const Interval& divisor) const;
};

/// What was rounded to it: "12.50" stands for 12.495 to 12.505, "1.2e+02" for 115 to 125, "2200"
/// for 2150 to 2250: its zeros may be digits that were cut. Never below 0. nullopt: no number.
std::optional<Interval> rounded_to(std::string_view word);

// The tests of nccl-tests, by name and by what their rows look like.

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
  bool is_common = true;        // false: it counts only if a line names it
};

std::span<const BandwidthTest> bandwidth_tests();
/// "all_reduce_perf" or "all_gather_perf_mpi" anywhere in the text; nullptr if there is none.
const BandwidthTest* test_in(std::string_view text);
/// Besides, a test's own name ("reduce", "sendrecv") and any text with a name of a collective
/// ("MPI Allgather", "my_all_to_all.csv").
const BandwidthTest* test_named(std::string_view text);
const BandwidthTest* test_of(Collective collective);

// The rows of one run of a test, as they were printed, in whatever format.

/// One group of columns: out of place or in place. Intervals are what the printed numbers may have
/// been.
struct Timing {
  bool in_place = false;
  double bytes = 0;  // of the row
  double time = 0;   // as printed, > 0
  Interval time_range = {};
  std::optional<Interval> algbw = {}, busbw = {};  // GB/s
  double low = 0, high = 0;          // least and largest repetition as printed, else 0
  std::optional<bool> checked = {};  // a number; false: "N/A"; absent: no such column
  double wrong = 0;                  // elements
};

/// One row as printed; `bytes` is the size column in bytes, in the log's own convention.
struct BandwidthRow {
  double bytes = 0;
  std::optional<double> count = {};               // elements
  std::optional<DType> dtype = {};                // absent: nothing says it
  std::optional<bool> reduces = {}, rooted = {};  // absent: the columns do not say
  bool none = false;                              // the operation's column says "none"
  bool travelled = false;                         // algbw was what travels: without_travelled()
  std::vector<Timing> timings;                    // out of place, then in place; at least one
};

/// Reads the cells into `row`. Returns why they cannot be read; empty: they were. Rows without a
/// column of sizes are of no bytes.
std::string unread(const Cells& cells, const Columns& columns, BandwidthRow& row);

/// A line "Rank 3 Group 0 Pid 12 on node1 device 3"; host and device may be empty.
struct RankLine {
  int rank = 0, group = 0;
  std::string host, device;
};

/// How credible a title is.
enum class TitleStrength { mention, command, statement };
/// The least credible first, and among equals in the order in which they came.
using TestTitles = std::multimap<TitleStrength, const BandwidthTest*>;

/// The rows between two headers, with what the log says about them.
struct BandwidthRun {
  TestTitles titles = {};
  std::optional<double> unit_s = {};  // of the times; absent: us or ms, as the bandwidths say
  int ranks = 0, ranks_per_node = 0;  // said outright; 0: not said
  bool states_parts = false;          // sizes are those of one rank's part of the array
  std::vector<BandwidthRow> rows = {};
  std::vector<RankLine> listed = {};  // of these some may be lost
  bool is_of_2017 = false;            // if the bandwidths do not say: that year prints ms
  bool failed = false;                // the footer says that results were out of bounds
};

using Rows = std::span<const BandwidthRow>;

/// Numbers of ranks, before anything excludes some.
inline constexpr Interval kAnyRanks{2, kMostRanks};
/// The whole n >= 2 whose factor lies in `ratio`.
Interval ranks_of(BusFactor factor, const Interval& ratio);

/// A log while its runs are read, one after the other. A reader of a format adds runs and refused
/// rows, and takes the log at the end.
class BandwidthLog {
 public:
  BandwidthLog(std::string source, std::string format, const CollectiveLogOptions& options)
      : options_(options), log_{.source = std::move(source), .format = std::move(format)} {}

  const std::string& source() const { return log_.source; }
  const CollectiveLogOptions& options() const { return options_; }
  void note(const std::string& text) {
    if (said_.insert(text).second) log_.note(text);
  }
  /// Counts a row that could not be read; the message quotes the first one, and says why it was, if
  /// that is known.
  void refuse(std::size_t line_number, std::string_view line, const std::string& why = "");
  /// Notes why readable rows are not used. It is an error if no others are left.
  void leave_out(const std::string& why) { left_out_.push_back(why); }
  /// Rows whose bandwidths contradict their times are refused; an ambiguous run, or part of one, is
  /// left out with a note. Throws InputError if the caller's options contradict the log.
  void add(BandwidthRun run);
  /// Throws InputError if everything was left out.
  CollectiveLog finish();

 private:
  void check_collective(const BandwidthRun& run) const;
  void add_stretch(const BandwidthRun& run, Rows rows, double unit_s);
  int settled_ranks(const BandwidthRun& run, const Interval& possible);

  CollectiveLogOptions options_;
  CollectiveLog log_;
  std::size_t refused_ = 0, wrong_ = 0;  // rows
  std::string first_refused_;
  bool failed_ = false;
  std::set<std::string> said_;
  std::vector<std::string> left_out_;  // why, one entry a run or a part of one
};

}  // namespace linerate::bench_logs
