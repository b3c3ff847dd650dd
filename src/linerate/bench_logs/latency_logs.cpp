// Logs that state latencies alone, without what tells the test and the ranks of nccl-tests: OSU
// micro-benchmarks and the summary of DeepSpeed's communication logger.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

TestTitles statement_of(Collective collective) {
  return {{TitleStrength::statement, test_of(collective)}};
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
    if (contains(title, other)) return std::nullopt;
  if (const BandwidthTest* test = test_named(title)) return test->collective;
  if (contains(title, "Reduce Latency")) return Collective::reduce;
  if (contains(title, "Barrier")) return Collective::barrier;
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
    std::string_view count = is_among(before, "-np -n --np") ? word : "";
    if (word.starts_with("--ntasks=")) count = word.substr(9);
    if (ranks == 0) ranks = count_of(count, 1).value_or(0);
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
  return line.starts_with('#') || (line.starts_with("OSU ") && contains(line, " Test")) ||
         (line.starts_with("Size ") && contains(line, "Latency"));
}

/// Reads a log line by line; several tests may follow each other in one.
class OsuReader {
 public:
  OsuReader(const std::string& name, const CollectiveLogOptions& options)
      : collective_(options.collective), log_(name, "OSU", options) {}

  /// One line. It is a title, a header, a blank line that may end the table, a launcher's command,
  /// or a possible row.
  void line(const std::string& plain, std::size_t number) {
    const std::string_view line = without_rendering(trim(without_label(plain)));
    if (is_comment(line))
      comment(trim(line.substr(line.starts_with('#') ? 1 : 0)));
    else if (line.empty())
      open_ = open_ && run_.rows.empty();  // what follows is another program's
    else if (const auto ranks = commanded_ranks(line))
      commanded_ranks_ = *ranks;
    else if (const auto words = words_of(line); other_test_.empty())
      read_row({words.begin(), words.end()}, number, line);
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
    if (text.starts_with("OSU ")) {
      end_table();
      const auto asked = log_.options().collective;
      collective_ = asked ? asked : collective_of_title(text);
      open_ = false;
      other_test_ = collective_ ? "" : std::string(text);
    } else if (text.starts_with("Datatype:")) {
      dtype_ = dtype_of_log(trim(text.substr(9, text.find('.', 9) - 9))).value_or(dtype_);
    } else if (contains(text, "Latency")) {
      begin_table(titles_of(text));
    }
  }

  void begin_table(const Cells& titles) {
    end_table();
    if (collective_)
      run_ = {.titles = statement_of(*collective_),
              .unit_s = 1e-6,
              .ranks = commanded_ranks_,
              .states_parts =
                  collective_ == Collective::all_gather || collective_ == Collective::all_to_all};
    words_ = titles.size(), open_ = true, interrupted_ = false;
    columns_ = columns_of_titles(titles);
    // A barrier alone has no sizes.
    if (!columns_.has("bytes") && collective_ != Collective::barrier) columns_ = {};
  }

  void end_table() {
    const int ranks = run_.ranks > 0 ? run_.ranks : log_.options().ranks.value_or(0);
    if (!run_.rows.empty()) ++tables_[{*collective_, ranks}];
    log_.add(std::exchange(run_, {}));
  }

  /// A row has as many words as the header has titles, and the first one is a number. Other lines
  /// interrupt the table. Numbers of another shape also end it.
  void read_row(const Cells& words, std::size_t number, std::string_view line) {
    const bool begun = !run_.rows.empty(), is_number = number_of(words[0]).has_value();
    // Some builds print more columns than they name; the first row says how many.
    if (open_ && !begun && !interrupted_ && words.size() > words_ &&
        std::all_of(words.begin(), words.end(), number_of))
      words_ = words.size();
    if (!is_number || words.size() != words_) {
      // A row that was cut, or numbers of another shape.
      if (is_number && open_) log_.refuse(number, line);
      open_ = open_ && !(is_number && begun);
      interrupted_ = true;
      return;
    }
    BandwidthRow row;
    const bool is_read = unread(words, columns_, row).empty();
    // Lines of other programs come between the rows of a table, too. After them only a row larger
    // than the last is taken to be of this table.
    if (!open_ || (interrupted_ && begun && row.bytes <= run_.rows.back().bytes)) {
      open_ = false;
      ++behind_;
      return;
    }
    if (!collective_ || !is_read) return log_.refuse(number, line);
    interrupted_ = false;
    row.dtype = dtype_;
    run_.rows.push_back(row);
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
  std::size_t words_ = 0;     // of a row
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
  static const Cells kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  const std::size_t n = words[0].ends_with('B') ? 1 : 2;
  const auto number = number_of(words[0].substr(0, words[0].size() - (n == 1 ? 1 : 0)));
  const auto unit = std::ranges::find(kUnits, n == 1 ? "B" : words[1]);
  if (!number || unit == kUnits.end()) return std::nullopt;
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(n));
  return *number * std::pow(1024.0, unit - kUnits.begin());
}

/// Collects rows first, because the number of ranks follows from all of them together.
class DeepSpeedReader {
 public:
  DeepSpeedReader(const std::string& name, const CollectiveLogOptions& options)
      : log_(name, "DeepSpeed", {.ranks = options.ranks}) {}

  void line(const std::string& plain, std::size_t number) {
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
      if (bytes && collective_ && !read_row(*bytes, words)) log_.refuse(number, line);
    }
  }

  CollectiveLog finish() {
    for (BandwidthRun& run : runs_) {
      if (possible_.single()) run.ranks = static_cast<int>(possible_.low);
      log_.add(std::move(run));
    }
    log_.note("the latencies of DeepSpeed's logger also hold the wait for late ranks");
    return log_.finish();
  }

 private:
  /// false: it was cut.
  bool read_row(double bytes, const std::vector<std::string_view>& words) {
    constexpr std::size_t kNumbers = 5;  // count, total, mean, tput, busbw
    if (words.size() < kNumbers || !std::all_of(words.begin(), words.begin() + kNumbers, number_of))
      return false;
    const double mean_ms = *number_of(words[2]);
    if (!(bytes > 0 && mean_ms > 0)) return true;
    runs_.push_back({.titles = statement_of(*collective_),
                     .unit_s = 1e-3,
                     .states_parts = collective_ == Collective::all_gather ||
                                     collective_ == Collective::reduce_scatter,
                     .rows = {{.timings = {{.bytes = bytes, .time = mean_ms}}}}});
    limit_ranks(*rounded_to(words[3]), *rounded_to(words[4]));
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
  std::vector<BandwidthRun> runs_;  // of one row each
  Interval possible_ = kAnyRanks;
};

}  // namespace

const LogFormat kOsu = {[](std::string_view head) {
                          const std::size_t title = std::min(head.find("OSU MPI"), head.size());
                          return contains(head, "# OSU ") ||
                                 contains(head.substr(title), "Latency(us)");
                        },
                        read_lines<OsuReader>};

const LogFormat kDeepSpeed = {[](std::string_view head) {
                                const std::size_t at = std::min(head.find(kHeader), head.size());
                                return contains(head.substr(at), "Message Size");
                              },
                              read_lines<DeepSpeedReader>};

}  // namespace linerate::bench_logs
