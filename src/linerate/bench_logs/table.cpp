// Tables of collective times: "bytes,seconds[,ranks[,collective]]" with or without a header, and
// what scripts make of nccl-tests (rccl-tests' own CSV, vTrain's, the columns of the text with
// commas).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "linerate/bench_logs/bandwidth_log.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/bench_logs/table_cells.hpp"
#include "linerate/bench_logs/table_columns.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

using Cells = std::vector<std::string>;

/// The next line that says anything, taken off; comments that are no header are passed over.
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
bool is_header(const TableColumns& columns) {
  return columns.known() && 2 * columns.named >= columns.cells;
}

/// "|---|---:|" below the header of a table in a text.
bool is_rule(std::string_view line) {
  return line.find_first_not_of("|-+=: \t") == std::string_view::npos;
}

bool is_false(const std::string& cell) {
  const std::string text = lowered(cell);
  return text.empty() || text == "0" || text == "false" || text == "no" || text == "out";
}

class TableReader {
 public:
  TableReader(const std::string& name, const CollectiveLogOptions& options)
      : log_(name, "table", options) {}

  void line(std::string_view line, std::size_t number) {
    const std::string plain = plain_blanks(line);
    const std::string_view text = trim(plain);
    if (text.empty() || is_rule(text)) return;
    if (const TableColumns header = columns_of_header(text); is_header(header)) {
      columns_ = header;
      require_unit(number);
      note_unit();
    } else if (!text.starts_with('#')) {
      const bool first = !columns_.known();
      if (first) columns_ = columns_of_plain_row(text);
      // What stands before a table is no row of it.
      if (!columns_.known()) return;
      const Cells cells = cells_of(text, columns_.separator);
      if (first) note_plain(cells);
      if (!add_row(cells)) log_.refuse(quoted_line(number, text));
    }
  }

  CollectiveLog finish() {
    for (auto& [kind, run] : runs_) {
      name_collective(run);
      log_.add(std::move(run));
    }
    return log_.finish();
  }

 private:
  /// Without one the bandwidths must say, as in nccl-tests.
  void require_unit(std::size_t number) const {
    const bool bandwidths = columns_.timings[0].algbw >= 0 || columns_.timings[1].algbw >= 0;
    if (!columns_.time_unit_s && !bandwidths)
      throw InputError(fmt::format("{}:{}", log_.source(), number),
                       "expected times with their unit, found none in the header; write seconds, "
                       "time_us or time(ns)");
  }

  /// MB is 10^6 bytes, and many who write it mean 2^20.
  void note_unit() {
    constexpr std::array<std::string_view, 3> kDecimal = {"kB", "MB", "GB"},
                                              kBinary = {"KiB", "MiB", "GiB"};
    for (std::size_t i = 0; i < kDecimal.size(); ++i)
      if (columns_.bytes_unit == std::pow(1e3, i + 1))
        log_.note(fmt::format("sizes in {} are read as 10^{} bytes; write {} where 2^{} was meant",
                              kDecimal[i], 3 * (i + 1), kBinary[i], 10 * (i + 1)));
  }

  void note_plain(const Cells& cells) {
    log_.note(fmt::format(
        "no header: its columns are taken as bytes,seconds{}; the first row as {} in {}",
        columns_.collective >= 0 ? ",ranks,collective"
        : columns_.ranks >= 0    ? ",ranks"
                                 : "",
        format_size(*number_of(cells[0])), format_time(*number_of(cells[1]))));
  }

  static const std::string& cell(const Cells& cells, int column) {
    static const std::string kNone;
    return column >= 0 ? cells[static_cast<std::size_t>(column)] : kNone;
  }

  /// A converted time shows more digits than were measured: 4120.9 us as 4120899 ns. nccl-tests
  /// prints five.
  static Interval five_digits(const Printed& time) {
    const double half = 0.5 * std::pow(10.0, std::floor(std::log10(time.value)) - 4);
    return {std::min(time.range.low, time.value - half),
            std::max(time.range.high, time.value + half)};
  }

  static std::optional<double> whole_number(const Cells& cells, int column) {
    const auto digits = plain_digits(cell(cells, column), true);
    return digits ? number_of(*digits) : std::nullopt;
  }

  static double seconds_or_none(const Cells& cells, int column) {
    const auto digits = plain_digits(cell(cells, column), false);
    return std::max(0.0, digits ? number_of(*digits).value_or(0) : 0);
  }

  static Timing timing_of(const Cells& cells, const TimingColumns& columns) {
    Timing t;
    const auto digits = plain_digits(cell(cells, columns.time), false);
    const auto time = digits ? printed_number(*digits) : std::nullopt;
    if (!time || time->value <= 0) return t;
    t.time = time->value, t.time_range = five_digits(*time);
    if (const auto bw = printed_number(cell(cells, columns.algbw))) t.algbw = bw->range;
    // 0 stands for what a script did not fill in.
    if (const auto bw = printed_number(cell(cells, columns.busbw)); bw && bw->value > 0)
      t.busbw = bw->range;
    t.low = seconds_or_none(cells, columns.low), t.high = seconds_or_none(cells, columns.high);
    const auto wrong = number_of(cell(cells, columns.wrong));
    if (columns.wrong >= 0) t.checked = wrong.has_value();
    t.wrong = wrong.value_or(0);
    return t;
  }

  std::optional<BandwidthRow> row_of(const Cells& cells) const {
    BandwidthRow row;
    const auto size = whole_number(cells, columns_.bytes);
    if (!size || *size < 0 || *size * columns_.bytes_unit > 1e15) return std::nullopt;
    row.bytes = *size * columns_.bytes_unit;
    if (columns_.dtype >= 0) {
      const auto type = dtype_of_log(cell(cells, columns_.dtype));
      if (!type) return std::nullopt;
      row.dtype = *type;
      row.count = whole_number(cells, columns_.count);
    }
    if (const std::string redop = lowered(cell(cells, columns_.redop)); !redop.empty())
      row.reduces = redop != "none" && redop != "-1";
    if (const auto root = number_of(cell(cells, columns_.root))) row.rooted = *root >= 0;
    for (int g = 0; g < 2; ++g) row.timings[g] = timing_of(cells, columns_.timings[g]);
    if (!is_false(cell(cells, columns_.in_place)) && row.timings[1].time <= 0)
      std::swap(row.timings[0], row.timings[1]);
    const double longest = std::max(row.timings[0].time, row.timings[1].time);
    constexpr double kDay = 86400;
    const bool timed = longest > 0 && longest * columns_.time_unit_s.value_or(1e-6) < kDay;
    return timed ? std::optional(row) : std::nullopt;
  }

  bool add_row(const Cells& cells) {
    // Columns without a title, such as those of a script's own, may follow.
    if (!columns_.known() || cells.size() < columns_.cells) return false;
    const auto row = row_of(cells);
    const double on_node = number_of(cell(cells, columns_.ranks_per_node)).value_or(0);
    const std::string& ranks_cell = cell(cells, columns_.ranks);
    auto ranks = ranks_cell.empty()
                     ? std::optional(number_of(cell(cells, columns_.nodes)).value_or(0) * on_node)
                     : number_of(ranks_cell);
    // rccl-tests counts processes, each of which may drive several devices.
    const double each = number_of(cell(cells, columns_.gpus_per_rank)).value_or(1);
    if (ranks) *ranks *= each;
    if (!row || !ranks || *ranks < 0 || *ranks > kMostRanks || *ranks != std::floor(*ranks))
      return false;
    if (row->bytes <= 0) return true;
    const double per_node = on_node * each;
    const std::string& collective = cell(cells, columns_.collective);
    if (!collective.empty() && !named_test(collective)) return false;
    BandwidthRun& run = runs_[{plain_word(collective), *ranks, per_node}];
    if (run.rows.empty()) {
      run.unit_s = columns_.time_unit_s;
      if (*ranks > 0)
        run.listed.set(static_cast<int>(*ranks),
                       per_node >= 1 && per_node <= *ranks ? static_cast<int>(per_node) : 0);
      if (!collective.empty())
        run.titles.emplace_back(TitleStrength::statement, named_test(collective));
    }
    run.rows.push_back(*row);
    return true;
  }

  static const BandwidthTest* named_test(const std::string& cell) {
    if (const BandwidthTest* test = test_named(cell)) return test;
    if (const BandwidthTest* test = test_in(cell)) return test;
    const auto collective = collective_named_in(cell);
    return collective ? test_of(*collective) : nullptr;
  }

  /// A table that names no collective is of what its own columns allow, of what the file is named
  /// after, or of all-reduce.
  void name_collective(BandwidthRun& run) {
    if (!run.titles.empty() || log_.options().collective) return;
    const auto named =
        collective_named_in(std::filesystem::path(log_.source()).filename().string());
    if (named) run.titles.emplace_back(TitleStrength::command, test_of(*named));
    run.titles.emplace_back(TitleStrength::mention, test_of(Collective::all_reduce));
    const BandwidthRow& row = run.rows.back();
    const bool says = row.reduces || row.count || row.timings[0].busbw || row.timings[1].busbw;
    if (!named && !says && !said_collective_)
      log_.note("the table does not name its collective; taken as all-reduce");
    said_collective_ = said_collective_ || (!named && !says);
  }

  TableColumns columns_;
  std::map<std::tuple<std::string, double, double>, BandwidthRun> runs_;  // by what the cells say
  bool said_collective_ = false;
  BandwidthLog log_;
};

}  // namespace

bool is_collective_table(std::string_view head) {
  const TableColumns columns = columns_of_header(next_line_of(head));
  return is_header(columns) && columns.separator != '\0';
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

CollectiveLog read_collective_table(trace::Input& input, const CollectiveLogOptions& options) {
  TableReader reader(input.name(), options);
  for (std::string_view line; input.next_line(line);) reader.line(line, input.line_number());
  return reader.finish();
}

}  // namespace linerate::bench_logs
