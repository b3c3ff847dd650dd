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
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "linerate/bench_logs/columns.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

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
  if (const auto c = collective_named_in(title)) return c;
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

/// All-gather sizes are one rank's contribution, all-to-all sizes are per destination: the total
/// array is n times that.
std::int64_t total_bytes(Collective c, double size, int ranks, const std::string& name) {
  if (c != Collective::all_gather && c != Collective::all_to_all)
    return static_cast<std::int64_t>(size);
  if (ranks < 1)
    throw InputError(
        name,
        fmt::format("OSU states the size of {} per rank, but not how many ranks ran; give --ranks",
                    name_of(c)));
  return static_cast<std::int64_t>(size * ranks);
}

/// The table under reading.
struct OsuTable {
  Columns columns = {};
  int ranks = 0;             // 0: unknown
  std::size_t words = 0;     // of a row
  std::size_t rows = 0;      // read so far
  double last_bytes = -1;    // of the last row
  bool open = false;         // there may be more rows
  bool interrupted = false;  // by another line since the last row
};

/// Reads a log line by line; several tests may follow each other in one.
class OsuReader {
 public:
  OsuReader(const std::string& name, const CollectiveLogOptions& options)
      : options_(options), collective_(options.collective), log_{.source = name, .format = "OSU"} {}

  /// One line. It is a title, a header, a blank line that may end the table, a launcher's command,
  /// or a possible row.
  void line(std::string_view text, std::size_t number) {
    const std::string plain = plain_blanks(text);
    const std::string_view line = without_rendering(trim(without_label(plain)));
    line_number_ = number, line_ = line;
    if (is_comment(line))
      comment(trim(line.substr(line.starts_with('#') ? 1 : 0)));
    else if (line.empty())
      table_.open = table_.open && table_.rows == 0;  // what follows is another program's
    else if (const auto ranks = commanded_ranks(line))
      commanded_ranks_ = *ranks;
    else if (const auto words = words_of(line); other_test_.empty())
      row({words.begin(), words.end()});
    else if (other_tests_.empty() || other_tests_.back() != other_test_)
      other_tests_.push_back(other_test_);
  }

  CollectiveLog finish() {
    note_other_tests();
    if (log_.rows.empty() && refused_ > 0)
      throw InputError(log_.source, fmt::format("expected rows of a size and a latency, found "
                                                "none; the first row that could not be read is {}",
                                                first_refused_));
    if (refused_ > 0)
      log_.note(
          fmt::format("{} rows could not be read; the first is {}", refused_, first_refused_));
    if (behind_ > 0)
      log_.note(fmt::format("{} lines of numbers after the end of a table were left out", behind_));
    for (const auto& [what, tables] : tables_)
      if (tables > 1)
        log_.note(fmt::format("{} tables of {} on {} ranks are taken as repetitions", tables,
                              name_of(what.first), what.second));
    if (ranks_unknown_) log_.note("OSU logs do not say how many ranks ran; give --ranks");
    return std::move(log_);
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
    collective_ = options_.collective ? options_.collective : collective_of_title(title);
    table_.columns = {}, table_.open = false;
    other_test_ = collective_ ? "" : std::string(title);
  }

  void begin_table(const Cells& titles) {
    const auto commanded = commanded_ranks_ > 0 ? std::optional(commanded_ranks_) : std::nullopt;
    table_ = {.columns = columns_of_titles(titles),
              .ranks = settle_ranks(log_.source, commanded, options_.ranks),
              .words = titles.size(),
              .open = true};
  }

  /// Whether the words may be a row of the present table: as many as the header has titles, and the
  /// first one a number. Other lines interrupt the table. Numbers of another shape also end it.
  bool has_shape(const Cells& words) {
    // Some builds print more columns than they name; the first row says how many.
    const bool first = table_.open && table_.rows == 0 && !table_.interrupted;
    if (first && words.size() > table_.words && std::all_of(words.begin(), words.end(), number_of))
      table_.words = words.size();
    const bool number = number_of(words[0]).has_value();
    if (number && words.size() == table_.words) return true;
    if (number && table_.open) refuse();  // a row that was cut, or numbers of another shape
    if (number && table_.rows > 0) table_.open = false;
    table_.interrupted = true;
    return false;
  }

  void row(const Cells& words) {
    if (!has_shape(words)) return;
    const auto size = table_.columns.bytes < 0 && collective_ == Collective::barrier
                          ? std::optional(0.0)
                          : number_at(words, table_.columns.bytes);
    // Lines of other programs come between the rows of a table, too. After them only a row larger
    // than the last is taken to be of this table.
    const bool smaller = table_.rows > 0 && size.value_or(-1) <= table_.last_bytes;
    if (!table_.open || (table_.interrupted && smaller)) {
      table_.open = false;
      ++behind_;
      return;
    }
    const TimingColumns& columns = table_.columns.timings[0];
    const auto us = number_at(words, columns.time);
    if (!collective_ || !us || !size || *us <= 0 || *size < 0 || *size > 1e15) return refuse();
    if (++table_.rows == 1) ++tables_[{*collective_, table_.ranks}];
    ranks_unknown_ = ranks_unknown_ || table_.ranks == 0;
    table_.last_bytes = *size, table_.interrupted = false;
    log_.rows.push_back({.collective = *collective_,
                         .ranks = table_.ranks,
                         .dtype = dtype_,
                         .bytes = total_bytes(*collective_, *size, table_.ranks, log_.source),
                         .seconds = *us * 1e-6,
                         .low_s = number_at(words, columns.low).value_or(0) * 1e-6,
                         .high_s = number_at(words, columns.high).value_or(0) * 1e-6});
  }

  /// Point-to-point, gather, scatter: an error if the log has nothing else.
  void note_other_tests() {
    for (const std::string& title : other_tests_) {
      const std::string what = fmt::format(
          "\"{}\" is not a collective that a training step uses; expected Allreduce, "
          "Reduce_scatter, Allgather, Alltoall, Bcast, Reduce or Barrier",
          title);
      if (log_.rows.empty()) throw InputError(log_.source, what);
      log_.note(what + "; left out");
    }
  }

  void refuse() {
    if (++refused_ == 1) first_refused_ = quoted_line(line_number_, line_);
  }

  const CollectiveLogOptions& options_;
  int commanded_ranks_ = 0;  // of the last command line; 0: unknown
  std::optional<Collective> collective_;
  DType dtype_ = DType::u8;  // MPI_CHAR unless the log says otherwise
  OsuTable table_;
  std::string other_test_;  // title of the present test if it is no collective; else empty
  std::vector<std::string> other_tests_;
  std::map<std::pair<Collective, int>, std::size_t> tables_;  // with rows
  bool ranks_unknown_ = false;                                // of some table
  std::size_t refused_ = 0, behind_ = 0;
  std::string first_refused_;
  std::size_t line_number_ = 0;
  std::string_view line_;  // under reading
  CollectiveLog log_;
};

}  // namespace

bool is_osu(std::string_view head) {
  if (head.find("# OSU ") != std::string_view::npos) return true;
  const std::size_t title = head.find("OSU MPI");
  return title != std::string_view::npos &&
         head.find("Latency(us)", title) != std::string_view::npos;
}

CollectiveLog read_osu(trace::InputFile& input, const CollectiveLogOptions& options) {
  OsuReader reader(input.name(), options);
  for (std::string_view line; input.next_line(line);) reader.line(line, input.line_number());
  return reader.finish();
}

}  // namespace linerate::bench_logs
