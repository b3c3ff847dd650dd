// Logs that state latencies alone, without what tells the test and the ranks of nccl-tests: OSU
// micro-benchmarks and the summary of DeepSpeed's communication logger.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

/// A run of one test whose rows will follow.
BandwidthRun run_of(Collective collective, int ranks, double unit_s) {
  BandwidthRun run;
  run.titles.emplace_back(TitleStrength::statement, test_of(collective));
  run.unit_s = unit_s;
  if (ranks > 0) run.listed.set(ranks);
  return run;
}

/// Some benchmarks state the size of a rank's part. The total array is n times that.
double total_bytes(double part, Collective c, int ranks, const BandwidthLog& log) {
  if (ranks < 1)
    throw InputError(
        log.source(),
        fmt::format("the size of {} is stated per rank, but not how many ranks ran; give --ranks",
                    name_of(c)));
  return part * ranks;
}

// OSU micro-benchmarks text, v5 to v7. A title comes first ("# OSU MPI Allreduce Latency Test
// v5.9"), then a header ("# Size Avg Latency(us)"), then rows. The reader goes through these states
// line by line.
//
// OSU prints no number of ranks. It is taken from a command line in the log, or from --ranks. Sizes
// of all-gather and all-to-all need it: "1024" on four ranks is a whole array of 4096 bytes.
//
// Output of other programs may come between rows. A line that is no row interrupts the table. After
// that only a row with a larger size than the last one is believed, because sizes of a table
// ascend.

/// Titles of columns contain single blanks, so the line is split at two or more.
Cells titles_of(std::string_view line) {
  Cells titles;
  for (line = trim(line); !line.empty();) {
    const std::size_t end = std::min({line.find("  "), line.find('\t'), line.size()});
    titles.emplace_back(trim(line.substr(0, end)));
    line = trim(line.substr(end));
  }
  return titles;
}

/// The collective that a title names; nullopt: none, or another operation that is named after one.
std::optional<Collective> collective_of_title(std::string_view title) {
  for (const std::string_view other : {"Neighborhood", "Non-blocking", "Non-Blocking", "Alltoallw"})
    if (title.find(other) != std::string_view::npos) return std::nullopt;
  if (const BandwidthTest* test = test_named(title)) return test->collective;
  if (title.find("Reduce Latency") != std::string_view::npos) return Collective::reduce;
  if (title.find("Barrier") != std::string_view::npos) return Collective::barrier;
  return std::nullopt;
}

/// Ranks of "mpirun -np 4 ... osu_allreduce"; 0: the command does not say how many; nullopt: the
/// line is no such command. Only numbers between the launcher's name and the benchmark's are looked
/// at.
std::optional<int> commanded_ranks(std::string_view line) {
  std::optional<int> ranks;  // from the launcher's name on
  std::string_view before;
  for (const std::string_view word : words_of(line)) {
    const std::string_view name = word.substr(word.find_last_of('/') + 1);
    if (name.starts_with("osu_")) return ranks;
    if (is_among(name, "mpirun mpiexec mpiexec.hydra srun")) ranks = ranks.value_or(0);
    const auto count = number_of(word.starts_with("--ntasks=")     ? word.substr(9)
                                 : is_among(before, "-np -n --np") ? word
                                                                   : "");
    if (ranks == 0 && count && *count >= 1 && *count <= kMostRanks && *count == std::floor(*count))
      ranks = static_cast<int>(*count);
    before = word;
  }
  return std::nullopt;
}

/// Without the marks that renderings put before a comment: "\\# OSU ...", "> # Size".
std::string_view without_rendering(std::string_view line) {
  const std::size_t mark = line.find_first_not_of("\\> ");
  return mark != std::string_view::npos && line[mark] == '#' ? line.substr(mark) : line;
}

/// The title and the header are comments, whose marks some renderings of a log lose.
bool is_comment(std::string_view line) {
  return line.starts_with('#') || (line.starts_with("OSU ") && line.find(" Test") != line.npos) ||
         (line.starts_with("Size ") && line.find("Latency") != line.npos);
}

/// Reads a log line by line; several tests may follow each other in one.
class OsuReader {
 public:
  OsuReader(const std::string& name, const CollectiveLogOptions& options)
      : collective_(options.collective), log_(name, "OSU", options) {}

  /// One line. It is a title, a header, a blank line that may end the table, a launcher's command,
  /// or a possible row.
  void line(std::string_view text, std::size_t number) {
    const std::string plain = plain_blanks(text);
    const std::string_view line = without_rendering(trim(without_label(plain)));
    if (is_comment(line))
      comment(trim(line.substr(line.starts_with('#') ? 1 : 0)));
    else if (line.empty())
      open_ = open_ && run_.rows.empty();  // what follows is another program's
    else if (const auto ranks = commanded_ranks(line))
      commanded_ranks_ = *ranks;
    else if (const auto words = words_of(line); other_test_.empty())
      read_row({words.begin(), words.end()}, quoted_line(number, line));
    else
      log_.leave_out(
          fmt::format("\"{}\" is not a collective that a training step uses; expected Allreduce, "
                      "Reduce_scatter, Allgather, Alltoall, Bcast, Reduce or Barrier",
                      other_test_));
  }

  CollectiveLog finish() {
    end_table();
    if (behind_ > 0)
      log_.note(fmt::format("{} lines of numbers after the end of a table were left out", behind_));
    for (const auto& [what, tables] : tables_)
      if (tables > 1)
        log_.note(fmt::format("{} tables of {} on {} ranks are taken as repetitions", tables,
                              name_of(what.first), what.second));
    return log_.finish();
  }

 private:
  void comment(std::string_view text) {
    if (text.starts_with("OSU "))
      begin_test(text);
    else if (text.starts_with("Datatype:"))
      dtype_ = dtype_of_log(trim(text.substr(9, text.find('.', 9) - 9))).value_or(dtype_);
    else if (text.find("Latency") != std::string_view::npos)
      begin_table(titles_of(text));
  }

  void begin_test(std::string_view title) {
    end_table();
    const auto asked = log_.options().collective;
    collective_ = asked ? asked : collective_of_title(title);
    columns_ = {}, open_ = false;
    other_test_ = collective_ ? "" : std::string(title);
  }

  void begin_table(Cells titles) {
    end_table();
    const auto commanded = commanded_ranks_ > 0 ? std::optional(commanded_ranks_) : std::nullopt;
    ranks_ = settle_ranks(log_.source(), commanded, log_.options().ranks);
    if (collective_) run_ = run_of(*collective_, ranks_, 1e-6);
    words_ = titles.size(), open_ = true, interrupted_ = false;
    columns_ = columns_of_titles(titles);
    sizeless_ = columns_.bytes < 0 && collective_ == Collective::barrier;
    if (!sizeless_) return;
    titles.insert(titles.begin(), "Size");
    columns_ = columns_of_titles(titles);
  }

  void end_table() {
    if (!run_.rows.empty()) ++tables_[{*run_.titles.front().second->collective, ranks_}];
    log_.add(std::exchange(run_, {}));
  }

  /// Whether the words may be a row of the present table: as many as the header has titles, and the
  /// first one a number. Other lines interrupt the table. Numbers of another shape also end it.
  bool has_shape(const Cells& words, const std::string& where) {
    // Some builds print more columns than they name; the first row says how many.
    const bool first = open_ && run_.rows.empty() && !interrupted_;
    if (first && words.size() > words_ && std::all_of(words.begin(), words.end(), number_of))
      words_ = words.size();
    const bool number = number_of(words[0]).has_value();
    if (number && words.size() == words_) return true;
    if (number && open_) log_.refuse(where);  // a row that was cut, or numbers of another shape
    if (number && !run_.rows.empty()) open_ = false;
    interrupted_ = true;
    return false;
  }

  void read_row(Cells words, const std::string& where) {
    if (!has_shape(words, where)) return;
    if (sizeless_) words.insert(words.begin(), "0");
    std::optional<BandwidthRow> row = row_of(words, columns_);
    // Lines of other programs come between the rows of a table, too. After them only a row larger
    // than the last is taken to be of this table.
    const bool smaller = !run_.rows.empty() && (!row || row->bytes <= last_bytes_);
    if (!open_ || (interrupted_ && smaller)) {
      open_ = false;
      ++behind_;
      return;
    }
    if (!collective_ || !row || !row->is_timed()) return log_.refuse(where);
    last_bytes_ = row->bytes, interrupted_ = false;
    if (collective_ == Collective::all_gather || collective_ == Collective::all_to_all)
      row->bytes = total_bytes(row->bytes, *collective_, ranks_, log_);
    row->dtype = dtype_;
    run_.rows.push_back(*row);
  }

  std::optional<Collective> collective_;
  BandwidthLog log_;
  int commanded_ranks_ = 0;  // of the last command line; 0: unknown
  DType dtype_ = DType::u8;  // MPI_CHAR unless the log says otherwise
  std::string other_test_;   // title of the present test if it is no collective; else empty
  std::map<std::pair<Collective, int>, std::size_t> tables_;  // with rows
  std::size_t behind_ = 0;
  // The table under reading.
  BandwidthRun run_;
  Columns columns_;
  int ranks_ = 0;             // 0: unknown
  std::size_t words_ = 0;     // of a row
  double last_bytes_ = -1;    // of the last row
  bool sizeless_ = false;     // a barrier's
  bool open_ = false;         // there may be more rows
  bool interrupted_ = false;  // by another line since the last row
};

// The summary of DeepSpeed's communication logger. It has a line for each operation, then a row for
// each size: "64.0 MB 24 190.05 7.92 67.79 118.63". The numbers are count, total and mean latency
// in ms, and two bandwidths in Gbit/s. KB is 1024 bytes. Sizes of gathers and scatters are one
// rank's part.
//
// The log does not say how many ranks ran. The bandwidths do: in the row above, 118.63 / 67.79 is
// 1.75, which is 2 (n - 1) / n for eight ranks.

constexpr std::string_view kHeader = "Comm. Op";

/// "64.0 MB", "0B"; nullopt: no size. Takes its words off.
std::optional<double> take_size(std::vector<std::string_view>& words) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  const bool joined = words[0].ends_with('B');
  if (!joined && words.size() < 2) return std::nullopt;
  const std::string_view unit = joined ? words[0].substr(words[0].size() - 1) : words[1];
  const auto number = number_of(joined ? words[0].substr(0, words[0].size() - 1) : words[0]);
  const auto at = std::find(kUnits.begin(), kUnits.end(), unit);
  if (!number || at == kUnits.end()) return std::nullopt;
  words.erase(words.begin(), words.begin() + (joined ? 1 : 2));
  return *number * std::pow(1024.0, at - kUnits.begin());
}

/// Collects rows first, because sizes of gathers need the number of ranks, which follows from all
/// rows together.
class DeepSpeedReader {
 public:
  DeepSpeedReader(const std::string& name, const CollectiveLogOptions& options)
      : log_(name, "DeepSpeed", {.ranks = options.ranks}) {}

  void line(std::string_view text, std::size_t number) {
    const std::string plain = plain_blanks(text);
    const std::string_view line = without_label(plain);
    std::vector<std::string_view> words = words_of(line);
    if (line.find(kHeader) != std::string_view::npos) {
      open_ = true;
    } else if (open_ && words.size() == 1) {
      const BandwidthTest* test = test_named(words[0]);
      collective_ = test ? test->collective : std::nullopt;
    } else if (open_ && words.size() > 1) {
      const auto bytes = take_size(words);
      // Others are another program's lines, or a send.
      if (bytes && collective_ && !read_row(*bytes, words)) log_.refuse(quoted_line(number, line));
    }
  }

  CollectiveLog finish() {
    const int ranks = settle_ranks(
        log_.source(),
        possible_.single() ? std::optional(static_cast<int>(possible_.low)) : std::nullopt,
        log_.options().ranks);
    for (auto& [collective, row] : rows_) {
      if (collective == Collective::all_gather || collective == Collective::reduce_scatter)
        row.bytes = total_bytes(row.bytes, collective, ranks, log_);
      row.bytes = std::round(row.bytes);
      BandwidthRun run = run_of(collective, ranks, 1e-3);
      run.rows.push_back(row);
      log_.add(std::move(run));
    }
    log_.note("the latencies of DeepSpeed's logger also hold the wait for late ranks");
    return log_.finish();
  }

 private:
  /// false: it was cut.
  bool read_row(double bytes, const std::vector<std::string_view>& words) {
    constexpr std::size_t kNumbers = 5;  // count, total, mean, tput, busbw
    std::vector<Printed> numbers;
    for (std::size_t i = 0; i < std::min(words.size(), kNumbers); ++i)
      if (const auto number = printed_number(words[i])) numbers.push_back(*number);
    if (numbers.size() < kNumbers) return false;
    const double mean_ms = numbers[2].value;
    if (!(bytes > 0 && mean_ms > 0)) return true;
    BandwidthRow row;
    row.bytes = bytes, row.says_type = false;
    row.timings[0].time = mean_ms;
    rows_.emplace_back(*collective_, row);
    limit_ranks(numbers[3].range, numbers[4].range);
    return true;
  }

  /// busbw over tput is (n - 1)/n. For an all-reduce it is twice that in versions that print tput
  /// without its factor of 2. For a broadcast or a reduce it is 1, which says nothing about n.
  void limit_ranks(const Interval& tput, const Interval& busbw) {
    const BandwidthTest* test = test_of(*collective_);
    if (test->factor == BusFactor::one || tput.low <= 0) return;
    const Interval ratio = busbw.over(tput);
    const bool is_twice = test->factor == BusFactor::twice && ratio.high >= 1;
    if (ratio.high >= (is_twice ? 2 : 1)) return;
    possible_ = possible_.with(ranks_of(is_twice ? BusFactor::twice : BusFactor::once, ratio));
  }

  BandwidthLog log_;
  bool open_ = false;
  std::optional<Collective> collective_;
  std::vector<std::pair<Collective, BandwidthRow>> rows_;
  Interval possible_ = kAnyRanks;
};

/// Line by line.
template <typename Reader>
CollectiveLog read_lines(trace::InputFile& input, const CollectiveLogOptions& options) {
  Reader reader(input.name(), options);
  for (std::string_view line; input.next_line(line);) reader.line(line, input.line_number());
  return reader.finish();
}

}  // namespace

bool is_osu(std::string_view head) {
  if (head.find("# OSU ") != std::string_view::npos) return true;
  const std::size_t title = head.find("OSU MPI");
  return title != std::string_view::npos &&
         head.find("Latency(us)", title) != std::string_view::npos;
}

CollectiveLog read_osu(trace::InputFile& input, const CollectiveLogOptions& options) {
  return read_lines<OsuReader>(input, options);
}

bool is_deepspeed(std::string_view head) {
  const std::size_t at = head.find(kHeader);
  return at != std::string_view::npos && head.find("Message Size", at) != std::string_view::npos;
}

CollectiveLog read_deepspeed(trace::InputFile& input, const CollectiveLogOptions& options) {
  return read_lines<DeepSpeedReader>(input, options);
}

}  // namespace linerate::bench_logs
