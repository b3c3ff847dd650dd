// Tables of collective times: "bytes,seconds[,ranks[,collective[,type]]]" with or without a header.
// Scripts make such tables of nccl-tests' output: rccl-tests' own CSV, vTrain's, and the columns of
// the text with commas. Rows are grouped to runs by collective, ranks and ranks on a node, in
// whatever order they come. Each run is then judged like a log of nccl-tests (bandwidth_log.hpp),
// so that bandwidths in the table are checked as well.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

#include "linerate/bench_logs/bandwidth_log.hpp"
#include "linerate/bench_logs/columns.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

/// Takes off the next line with content; comments that are no header are passed over.
std::string_view next_line_of(std::string_view& head) {
  while (!head.empty()) {
    const std::size_t end = std::min(head.find('\n'), head.size());
    const std::string_view line = trim(head.substr(0, end));
    head.remove_prefix(std::min(end + 1, head.size()));
    if (!line.empty() && (!line.starts_with('#') || columns_of_header(line).known())) return line;
  }
  return {};
}

/// Words of prose may be those of a header by chance.
bool is_header(const Columns& columns) {
  return columns.known() && 2 * columns.named >= columns.cells;
}

/// "|---|---:|" below the header of a table in a text.
bool is_rule(std::string_view line) {
  return line.find_first_not_of("|-+=: \t") == std::string_view::npos;
}

/// "(B)   (elements)   (us)", below the names of the columns.
bool is_line_of_units(std::string_view line) {
  const auto words = words_of(line);
  return !words.empty() && std::all_of(words.begin(), words.end(), [](std::string_view word) {
    return word.starts_with('(') && word.ends_with(')');
  });
}

/// The header with each unit of the line below it appended to a name. Units stand under their
/// names, aligned at the left or the right. So a unit belongs to the name whose left or right end
/// is nearest to its own. "size time" over "(B) (us)" becomes "size(B) time(us)".
std::string with_units(const std::string& header, const std::string& units) {
  const auto ends_in = [](std::string_view word, const std::string& line) {
    const auto begin = word.data() - line.data();
    return std::pair(begin, begin + std::ssize(word));
  };
  const auto words = words_of(header);
  std::vector<std::string> names(words.begin(), words.end());
  for (const std::string_view unit : words_of(units)) {
    const auto [begin, end] = ends_in(unit, units);
    const auto off = [&, from = begin, to = end](std::string_view word) {
      const auto ends = ends_in(word, header);
      return std::min(std::abs(ends.first - from), std::abs(ends.second - to));
    };
    const auto nearest_word =
        std::min_element(words.begin(), words.end(),
                         [&](std::string_view x, std::string_view y) { return off(x) < off(y); });
    names[to_index(nearest_word - words.begin())] += unit;
  }
  return join(names, "  ");
}

bool is_false(const std::string& cell) {
  return cell.empty() || is_among(lowered(cell), "0 false no out");
}

/// What a time may have been before it was converted. A script may show more digits than were
/// measured: 4120.9 us as 4120899 ns. nccl-tests prints five digits, so half a unit of the fifth is
/// allowed.
Interval five_digits(const Timing& t) {
  const double half = 0.5 * std::pow(10.0, std::floor(std::log10(t.time)) - 4);
  return {std::min(t.time_range.low, t.time - half), std::max(t.time_range.high, t.time + half)};
}

const BandwidthTest* test_in_cell(const std::string& cell) {
  if (const BandwidthTest* test = test_named(cell)) return test;
  if (const BandwidthTest* test = test_in(cell)) return test;
  const auto collective = collective_named_in(cell);
  return collective ? test_of(*collective) : nullptr;
}

/// The first word of the file's name that is an element type: f16 of "all_reduce_f16.csv".
std::optional<DType> dtype_named_in(const std::string& path) {
  std::string words = std::filesystem::path(path).filename().string();
  for (char& c : words)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = ' ';
  for (const std::string_view word : words_of(words))
    if (word.size() > 2)
      if (const auto type = dtype_of_log(word); type && !is_among(lowered(word), "byte char int"))
        return type;
  return std::nullopt;
}

/// Reads a table line by line into runs. Units of time must be known before the first row: from the
/// header, from a line of units below it, or from bandwidths. Without any of these the table is
/// refused, because a wrong guess is off by a thousand.
class TableReader {
 public:
  TableReader(const std::string& name, const CollectiveLogOptions& options)
      : named_type_(dtype_named_in(name)), log_(name, "table", options) {}

  void line(std::string_view line, std::size_t number) {
    const std::string plain = plain_blanks(line);
    const std::string_view text = trim(plain);
    if (text.empty() || is_rule(text)) return;
    if (columns_.known() && is_line_of_units(text)) {
      read_header(with_units(header_, plain), number);
    } else if (is_header(columns_of_header(text))) {
      read_header(plain, number);
    } else if (columns_.known() && lacks_unit()) {
      refuse_unit();
    } else if (!text.starts_with('#')) {
      const bool first = !columns_.known();
      if (first) columns_ = columns_of_plain_row(text);
      // Lines before a table are no rows of it.
      if (!columns_.known()) return read_title(text);
      const Cells cells = cells_of(text, columns_.separator);
      if (first) note_plain(cells);
      if (!is_row(cells)) return;
      if (const std::string why = add_row(cells); !why.empty())
        log_.refuse(quoted_line(number, text), why);
    }
  }

  CollectiveLog finish() {
    if (columns_.known() && lacks_unit()) refuse_unit();
    for (auto& [kind, run] : runs_) {
      name_collective(run);
      log_.add(std::move(run));
    }
    return log_.finish();
  }

 private:
  void read_header(const std::string& line, std::size_t number) {
    header_ = line, header_number_ = number;
    columns_ = columns_of_header(trim(line));
    note_unit();
  }

  /// The bandwidths may say it, as in nccl-tests, or the line below.
  bool lacks_unit() const {
    const bool bandwidths = columns_.timings[0].algbw >= 0 || columns_.timings[1].algbw >= 0;
    return !columns_.time_unit_s && !bandwidths;
  }

  [[noreturn]] void refuse_unit() const {
    throw InputError(fmt::format("{}:{}", log_.source(), header_number_),
                     "expected times with their unit, found none in the header; write seconds, "
                     "time_us or time(ns)");
  }

  /// "collective=all_reduce", above a table.
  void read_title(std::string_view line) {
    const std::size_t at = line.find("collective=");
    if (at != std::string_view::npos) title_ = collective_named_in(line.substr(at));
  }

  /// Whether the cells are a row. A text after a table is none: "Avg bus bandwidth: 58.4GB/s". A
  /// row with an unreadable size is one if it has enough cells, and is then refused with its
  /// reason.
  bool is_row(const Cells& cells) const {
    const bool sized = to_index(columns_.bytes) < cells.size() &&
                       number_of(cell_at(cells, columns_.bytes)).has_value();
    return sized || cells.size() >= columns_.cells;
  }

  /// MB is 10^6 bytes, and many who write it mean 2^20.
  void note_unit() {
    constexpr std::array<std::string_view, 3> kDecimal = {"kB", "MB", "GB"},
                                              kBinary = {"KiB", "MiB", "GiB"};
    for (std::size_t i = 0; i < kDecimal.size(); ++i)
      if (columns_.bytes_unit == std::pow(1e3, i + 1))
        log_.note(fmt::format("sizes in {} are read as 10^{} bytes; write {} if 2^{} was meant",
                              kDecimal[i], 3 * (i + 1), kBinary[i], 10 * (i + 1)));
  }

  void note_plain(const Cells& cells) {
    log_.note(fmt::format(
        "no header, so its columns are taken as bytes,seconds{}, and the first row as {} in {}",
        columns_.dtype >= 0        ? ",ranks,collective,type"
        : columns_.collective >= 0 ? ",ranks,collective"
        : columns_.ranks >= 0      ? ",ranks"
                                   : "",
        format_size(*number_of(cells[0])), format_time(*number_of(cells[1]))));
  }

  /// nullopt if a cell cannot be read or there is no time.
  std::optional<BandwidthRow> timed_row(const Cells& cells) const {
    std::optional<BandwidthRow> row = row_of(cells, columns_);
    if (!row) return row;
    if (columns_.dtype < 0) take_type_of_name(*row);
    Timing* times = row->timings;
    if (!is_false(cell_at(cells, columns_.in_place)) && times[1].time <= 0)
      std::swap(times[0], times[1]);
    for (Timing& t : row->timings) {
      if (t.time > 0) t.time_range = five_digits(t);
      // Scripts write 0 for what they do not know.
      if (t.busbw && t.busbw->low <= 0) t.busbw.reset();
    }
    constexpr double kDay = 86400;
    const double longest = std::max(times[0].time, times[1].time);
    const bool timed = longest > 0 && longest * columns_.time_unit_s.value_or(1e-6) < kDay;
    return timed ? row : std::nullopt;
  }

  /// A table without a column of types may be named after its type: "all_reduce_f16.csv".
  void take_type_of_name(BandwidthRow& row) const {
    row.says_type = named_type_.has_value();
    row.dtype = named_type_.value_or(DType::f32);
  }

  /// Why it cannot be read; empty if it was, or says nothing.
  std::string add_row(const Cells& cells) {
    // Columns without a title, such as those of a script's own, may follow.
    if (cells.size() < columns_.cells)
      return fmt::format("expected {} cells, found {}", columns_.cells, cells.size());
    const auto row = timed_row(cells);
    if (!row) return expected_of(cells);
    const double on_node = number_at(cells, columns_.ranks_per_node).value_or(0);
    const std::string& counted = cell_at(cells, columns_.ranks);
    auto ranks = number_of(counted);
    if (counted.empty()) ranks = number_at(cells, columns_.nodes).value_or(0) * on_node;
    // rccl-tests counts processes, each of which may drive several devices.
    const double each = number_at(cells, columns_.gpus_per_rank).value_or(1);
    if (ranks) *ranks *= each;
    const double least = counted.empty() ? 0 : 1;
    if (!ranks || *ranks < least || *ranks > kMostRanks || *ranks != std::floor(*ranks))
      return fmt::format("expected 1 to {} ranks, found \"{}\"", kMostRanks, counted);
    if (row->bytes <= 0) return "";
    const std::string& collective = cell_at(cells, columns_.collective);
    const BandwidthTest* test = test_in_cell(collective);
    if (!collective.empty() && !test) return unknown_collective(collective);
    const double per_node = on_node * each;
    BandwidthRun& run = runs_[{plain_word(collective), *ranks, per_node}];
    if (run.rows.empty()) {
      run.unit_s = columns_.time_unit_s;
      if (*ranks > 0)
        run.listed.set(static_cast<int>(*ranks),
                       per_node >= 1 && per_node <= *ranks ? static_cast<int>(per_node) : 0);
      if (test) run.titles.emplace_back(TitleStrength::statement, test);
    }
    run.rows.push_back(*row);
    return "";
  }

  /// Of a row whose size, type or time cannot be read.
  std::string expected_of(const Cells& cells) const {
    if (!row_of(cells, columns_)) {
      const std::string& type = cell_at(cells, columns_.dtype);
      if (!type.empty() && !dtype_of_log(type))
        return fmt::format("expected an element type, found \"{}\"", type);
      return fmt::format("expected a size, found \"{}\"", cell_at(cells, columns_.bytes));
    }
    const TimingColumns* groups = columns_.timings;
    const int time = groups[0].time >= 0 ? groups[0].time : groups[1].time;
    return fmt::format("expected a time above 0, found \"{}\"", cell_at(cells, time));
  }

  static std::string unknown_collective(const std::string& name) {
    const std::vector<std::string> known(kCollectiveNames.begin(), kCollectiveNames.end());
    const std::string near = nearest(name, known);
    return fmt::format("expected one of {}, found \"{}\"{}", join(known, ", "), name,
                       near.empty() ? "" : "; did you mean " + near + "?");
  }

  /// Names the collective of a table whose cells do not. A line above the table or the name of the
  /// file counts like a command. Otherwise the columns decide, and if they say nothing it is
  /// all-reduce.
  void name_collective(BandwidthRun& run) {
    if (!run.titles.empty() || log_.options().collective) return;
    const std::string file = std::filesystem::path(log_.source()).filename().string();
    const auto named = title_ ? title_ : collective_named_in(file);
    if (named) run.titles.emplace_back(TitleStrength::command, test_of(*named));
    run.titles.emplace_back(TitleStrength::mention, test_of(Collective::all_reduce));
    const BandwidthRow& row = run.rows.back();
    const bool says = row.reduces || row.count || row.timings[0].busbw || row.timings[1].busbw;
    if (!named && !says && !said_collective_) {
      log_.note("the table does not name its collective, so it is taken as all-reduce");
      said_collective_ = true;
    }
  }

  Columns columns_;
  std::string header_;  // the line of it
  std::size_t header_number_ = 0;
  std::optional<Collective> title_;  // above the table
  std::optional<DType> named_type_;
  std::map<std::tuple<std::string, double, double>, BandwidthRun> runs_;  // by what the cells say
  bool said_collective_ = false;
  BandwidthLog log_;
};

}  // namespace

bool is_collective_table(std::string_view head) {
  const Columns columns = columns_of_header(next_line_of(head));
  return is_header(columns) && columns.separator != '\0';
}

bool is_hccl_demo(std::string_view head) {
  return head.find("[SUMMARY REPORT]") != std::string_view::npos && is_plain_table(head);
}

bool is_plain_table(std::string_view head) {
  std::string_view rest = head;
  for (std::string_view line; !(line = next_line_of(rest)).empty();) {
    if (columns_of_plain_row(line).known()) return true;
    // A row that cannot be read may come first.
    const std::size_t end = line.find_first_of(",;\t");
    if (end == std::string_view::npos || !number_of(line.substr(0, end))) break;
  }
  for (std::string_view line; !(line = next_line_of(head)).empty();)
    if (is_header(columns_of_header(line))) return true;
  return false;
}

CollectiveLog read_collective_table(trace::InputFile& input, const CollectiveLogOptions& options) {
  TableReader reader(input.name(), options);
  for (std::string_view line; input.next_line(line);) reader.line(line, input.line_number());
  return reader.finish();
}

}  // namespace linerate::bench_logs
