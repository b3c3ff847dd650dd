// OSU micro-benchmarks text, v5 to v7: "# OSU MPI Allreduce Latency Test v5.9", "# Size  Avg
// Latency(us)", rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "linerate/bench_logs/line_label.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

/// Column titles contain single blanks: split on runs of two or more.
std::vector<std::string> titles_of(std::string_view line) {
  std::vector<std::string> titles;
  line = trim(line);
  while (!line.empty()) {
    std::size_t end = line.find("  ");
    const std::size_t tab = line.find('\t');
    end = std::min({end, tab, line.size()});
    titles.emplace_back(trim(line.substr(0, end)));
    line = trim(line.substr(end));
  }
  return titles;
}

struct Columns {
  int size = -1, average = -1, low = -1, high = -1;
};

Columns columns_of(std::string_view header) {
  Columns c;
  const std::vector<std::string> titles = titles_of(header);
  for (int i = 0; i < static_cast<int>(titles.size()); ++i) {
    const std::string& t = titles[static_cast<std::size_t>(i)];
    if (t == "Size")
      c.size = i;
    else if (t.starts_with("Avg Latency") || t.starts_with("Latency"))
      c.average = i;
    else if (t.starts_with("Min Latency"))
      c.low = i;
    else if (t.starts_with("Max Latency"))
      c.high = i;
  }
  return c;
}

/// nullopt, too, for what is named after a collective and is another operation.
std::optional<Collective> collective_of_title(std::string_view title) {
  for (const std::string_view other : {"Neighborhood", "Non-blocking", "Non-Blocking", "Alltoallw"})
    if (title.find(other) != std::string_view::npos) return std::nullopt;
  if (const auto c = collective_named_in(title)) return c;
  if (title.find("Reduce Latency") != std::string_view::npos) return Collective::reduce;
  if (title.find("Barrier") != std::string_view::npos) return Collective::barrier;
  return std::nullopt;
}

/// "mpirun -np 4 ... osu_allreduce".
struct Command {
  bool launches = false;
  std::optional<int> ranks = {};  // that the launcher was asked for
};

Command command_in(std::string_view line) {
  Command command;
  const auto words = words_of(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i], name = word.substr(word.find_last_of('/') + 1);
    if (name == "mpirun" || name == "mpiexec" || name == "mpiexec.hydra" || name == "srun")
      command.launches = true;
    if (name.starts_with("osu_")) return command;
    if (!command.launches || command.ranks) continue;
    const bool counts = word == "-np" || word == "-n" || word == "--np";
    const std::string_view count = word.starts_with("--ntasks=")    ? word.substr(9)
                                   : counts && i + 1 < words.size() ? words[i + 1]
                                                                    : "";
    const auto ranks = number_of(count);
    if (ranks && *ranks >= 1 && *ranks <= kMostRanks && *ranks == std::floor(*ranks))
      command.ranks = static_cast<int>(*ranks);
  }
  return {};
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
        fmt::format("OSU states the size of {} per rank, and not how many ranks ran; give --ranks",
                    name_of(c)));
  return static_cast<std::int64_t>(size * ranks);
}

/// Reads a log line by line; several tests may follow each other in one.
class OsuReader {
 public:
  OsuReader(const std::string& name, const CollectiveLogOptions& options)
      : options_(options), collective_(options.collective), log_{.source = name, .format = "OSU"} {}

  void line(std::string_view text, std::size_t number) {
    const std::string plain = plain_blanks(text);
    const std::string_view line = without_rendering(trim(without_label(plain)));
    line_number_ = number, line_ = line;
    if (is_comment(line))
      comment(trim(line.substr(line.starts_with('#') ? 1 : 0)));
    else if (line.empty())
      close();
    else if (const Command command = command_in(line); command.launches)
      commanded_ranks_ = command.ranks;
    else if (other_test_.empty())
      row(words_of(line));
    else if (other_tests_.empty() || other_tests_.back() != other_test_)
      other_tests_.push_back(other_test_);
  }

  CollectiveLog finish() {
    note_other_tests();
    if (log_.rows.empty() && refused_ > 0)
      throw InputError(log_.source,
                       fmt::format("expected rows of a size and a latency, found none; the first "
                                   "that could not be read is {}",
                                   first_refused_));
    if (refused_ > 0)
      note(fmt::format("{} rows could not be read; the first is {}", refused_, first_refused_));
    if (behind_ > 0)
      note(fmt::format("{} lines of numbers behind the end of a table were left out", behind_));
    for (const auto& [what, tables] : tables_)
      if (tables > 1)
        note(fmt::format("{} tables of {} on {} ranks are taken as repetitions", tables,
                         name_of(what.first), what.second));
    if (ranks_unknown_) note("OSU logs do not say how many ranks ran; give --ranks");
    return std::move(log_);
  }

 private:
  void comment(std::string_view text) {
    if (text.starts_with("OSU "))
      begin_test(text);
    else if (text.starts_with("Datatype:"))
      dtype_ = dtype_of_log(trim(text.substr(9, text.find('.', 9) - 9))).value_or(dtype_);
    else if (text.find("Latency") != std::string_view::npos)
      begin_table(text);
  }

  void begin_table(std::string_view header) {
    columns_ = columns_of(header);
    words_ = titles_of(header).size();
    rows_ = 0, last_bytes_ = -1;
    ranks_ = settle_ranks(log_.source, commanded_ranks_, options_.ranks);
    open_ = true, interrupted_ = false;
  }

  /// An empty line ends a table that has begun; what follows is another program's.
  void close() {
    if (rows_ > 0) open_ = false;
  }

  void begin_test(std::string_view title) {
    collective_ = options_.collective ? options_.collective : collective_of_title(title);
    columns_ = {}, open_ = false;
    other_test_ = collective_ ? "" : std::string(title);
  }

  /// Lines of other programs come between the rows of a table, too. Behind them only a row of as
  /// many words, and of a larger size than the last, is believed to be of this table.
  bool belongs(const std::vector<std::string_view>& words, std::optional<double> size) {
    const bool number = number_of(words[0]).has_value();
    // Some builds print more columns than they name; the first row says how many.
    const bool longer = words.size() > words_ && std::all_of(words.begin(), words.end(), number_of);
    if (open_ && rows_ == 0 && !interrupted_ && longer) words_ = words.size();
    if (!number || words.size() != words_) {
      // A row that was cut, or numbers of another shape.
      if (number && open_) refuse();
      if (number && rows_ > 0) open_ = false;
      interrupted_ = true;
      return false;
    }
    if (open_ && !(interrupted_ && rows_ > 0 && size.value_or(-1) <= last_bytes_)) return true;
    open_ = false;
    ++behind_;
    return false;
  }

  void row(const std::vector<std::string_view>& words) {
    const auto at = [&words](int i) {
      return i >= 0 && i < static_cast<int>(words.size())
                 ? number_of(words[static_cast<std::size_t>(i)])
                 : std::nullopt;
    };
    const std::optional<double> us = at(columns_.average);
    const std::optional<double> size =
        columns_.size < 0 && collective_ == Collective::barrier ? 0.0 : at(columns_.size);
    if (!belongs(words, size)) return;
    if (!collective_ || !us || !size || *us <= 0 || *size < 0 || *size > 1e15) {
      refuse();
      return;
    }
    if (++rows_ == 1) ++tables_[{*collective_, ranks_}];
    ranks_unknown_ = ranks_unknown_ || ranks_ == 0;
    last_bytes_ = *size;
    interrupted_ = false;
    log_.rows.push_back({.collective = *collective_,
                         .ranks = ranks_,
                         .dtype = dtype_,
                         .bytes = total_bytes(*collective_, *size, ranks_, log_.source),
                         .seconds = *us * 1e-6,
                         .low_s = at(columns_.low).value_or(0) * 1e-6,
                         .high_s = at(columns_.high).value_or(0) * 1e-6});
  }

  /// Point-to-point, gather, scatter: an error where the log has nothing else.
  void note_other_tests() {
    for (const std::string& title : other_tests_) {
      const std::string what = fmt::format(
          "\"{}\" is not a collective that a training step uses; expected Allreduce, "
          "Reduce_scatter, Allgather, Alltoall, Bcast, Reduce or Barrier",
          title);
      if (log_.rows.empty()) throw InputError(log_.source, what);
      note(what + "; left out");
    }
  }

  void refuse() {
    if (++refused_ == 1)
      first_refused_ = fmt::format("line {}: \"{}\"", line_number_, shortened(line_));
  }

  void note(const std::string& text) {
    log_.notes.push_back(fmt::format("{}: {}", log_.source, text));
  }

  const CollectiveLogOptions& options_;
  std::optional<int> commanded_ranks_;                        // of the last command line
  int ranks_ = 0;                                             // of the present table; 0: unknown
  bool ranks_unknown_ = false;                                // of some table
  std::map<std::pair<Collective, int>, std::size_t> tables_;  // with rows
  std::optional<Collective> collective_;
  DType dtype_ = DType::u8;  // MPI_CHAR unless the log says otherwise
  Columns columns_;
  std::size_t words_ = 0;     // of a row of the present table
  std::size_t rows_ = 0;      // read of it
  double last_bytes_ = -1;    // of its last row
  bool open_ = false;         // it may have more rows
  bool interrupted_ = false;  // by another line since its last row
  std::string other_test_;    // title of the present test where it is no collective; else empty
  std::vector<std::string> other_tests_;
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

CollectiveLog read_osu(trace::Input& input, const CollectiveLogOptions& options) {
  OsuReader reader(input.name(), options);
  for (std::string_view line; input.next_line(line);) reader.line(line, input.line_number());
  return reader.finish();
}

}  // namespace linerate::bench_logs
