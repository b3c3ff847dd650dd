// Tables of collective times: "bytes,seconds[,ranks[,collective[,type]]]" with or without a header.
// Scripts make such tables of nccl-tests' output: rccl-tests' own CSV, vTrain's, and the columns of
// the text with commas. Rows are grouped to runs by collective, ranks and ranks on a node, in
// whatever order they come. Each run is then judged like a log of nccl-tests (log_readers.hpp),
// so that bandwidths in the table are checked as well.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

/// Takes off the next line with content; comments that are no header are passed over.
std::string_view next_line_of(std::string_view& head) {
  while (!head.empty()) {
    const std::string_view line = trim(take_line(head));
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
  /// `known`: what is said of the rows besides the table.
  TableReader(const std::string& name, const CollectiveLogOptions& options,
              const std::string& format = "table", BandwidthRun known = {})
      : named_type_(dtype_named_in(name)), known_(std::move(known)), log_(name, format, options) {}

  void line(const std::string& plain, std::size_t number) {
    const std::string_view text = trim(plain);
    if (text.empty() || is_rule(text)) return;
    if (below_header_ && take_units(text, columns_)) return note_unit();
    if (const Columns header = columns_of_header(text); is_header(header)) {
      begin(header, number);
    } else if (columns_.known() && lacks_unit()) {
      refuse_unit();
    } else if (!text.starts_with('#')) {
      below_header_ = false;
      const bool first = !columns_.known();
      if (first) columns_ = columns_of_plain_row(text);
      // Lines before a table are no rows of it.
      if (!columns_.known()) return read_title(text);
      const Cells cells = cells_of(text, columns_.separator);
      if (first) note_plain(cells);
      if (is_row(cells)) row(cells, number, text);
    }
  }
  /// What rows will hold.
  void begin(const Columns& columns, std::size_t number) {
    columns_ = columns, header_number_ = number, below_header_ = true;
    note_unit();
  }
  void row(const Cells& cells, std::size_t number, std::string_view text) {
    if (const std::string why = add_row(cells); !why.empty()) log_.refuse(number, text, why);
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
  /// The bandwidths may say it, as in nccl-tests, or the line below.
  bool lacks_unit() const { return !columns_.time_unit_s && !columns_.has("algbw"); }

  [[noreturn]] void refuse_unit() const {
    throw InputError(fmt::format("{}:{}", log_.source(), header_number_),
                     "expected times with their unit, found none in the header; write seconds, "
                     "time_us or time(ns)");
  }

  /// "collective=all_reduce", above a table.
  void read_title(std::string_view line) {
    const std::size_t at = line.find("collective=");
    if (at != std::string_view::npos) title_ = test_named(line.substr(at));
  }

  /// Whether the cells are a row. A text after a table is none: "Avg bus bandwidth: 58.4GB/s". A
  /// row with an unreadable size is one if it has enough cells, and is then refused with its
  /// reason.
  bool is_row(const Cells& cells) const {
    const std::size_t size = columns_.places.at({"bytes", 0});
    return cells.size() >= columns_.cells || (size < cells.size() && number_of(cells[size]));
  }

  /// MB is 10^6 bytes, and many who write it mean 2^20.
  void note_unit() {
    for (const int i : {1, 2, 3})
      if (columns_.bytes_unit == std::pow(1e3, i))
        log_.note(fmt::format("sizes in {}B are read as 10^{} bytes; write {}iB if 2^{} was meant",
                              " kMG"[i], 3 * i, " KMG"[i], 10 * i));
  }

  void note_plain(const Cells& cells) {
    log_.note(
        fmt::format("no header, so its columns are taken as {}, and the first row as {} in {}",
                    fmt::join(std::span(kPlainTitles).first(cells.size()), ","),
                    format_size(*number_of(cells[0])), format_time(*number_of(cells[1]))));
  }

  /// Of a row: what only tables may say otherwise.
  void adapt(BandwidthRow& row, const Cells& cells) const {
    // A table without a column of types may be named after its type: "all_reduce_f16.csv".
    if (!columns_.has("dtype")) row.dtype = named_type_;
    const bool in_place = row.timings.size() == 1 && !is_false(columns_.cell(cells, "inplace"));
    for (Timing& t : row.timings) {
      t.in_place = t.in_place || in_place;
      t.time_range = five_digits(t);
      // Scripts write 0 for what they do not know.
      if (t.busbw && t.busbw->low <= 0) t.busbw.reset();
    }
  }

  /// Why it cannot be read; empty if it was, or says nothing.
  std::string add_row(const Cells& cells) {
    // Columns without a title, such as those of a script's own, may follow.
    if (cells.size() < columns_.cells)
      return fmt::format("expected {} cells, found {}", columns_.cells, cells.size());
    BandwidthRow row;
    if (const std::string why = unread(cells, columns_, row); !why.empty()) return why;
    adapt(row, cells);
    const auto number = [&](std::string_view name) {
      return number_of(columns_.cell(cells, name));
    };
    // rccl-tests counts processes, each of which may drive several devices.
    const double each = number("gpusperrank").value_or(1),
                 on_node = number("rankspernode").value_or(0) * each;
    const std::string& counted = columns_.cell(cells, "ranks");
    const double ranks = counted.empty() ? number("nodes").value_or(0) * on_node
                                         : number("ranks").value_or(-1) * each;
    if (ranks < (counted.empty() ? 0 : 1) || ranks > kMostRanks || ranks != std::floor(ranks))
      return fmt::format("expected 1 to {} ranks, found \"{}\"", kMostRanks, counted);
    if (row.bytes <= 0) return "";
    const std::string& collective = columns_.cell(cells, "collective");
    const BandwidthTest* test = test_named(collective);
    if (!collective.empty() && !test) {
      const std::vector<std::string> known(kCollectiveNames.begin(), kCollectiveNames.end());
      const std::string near = nearest(collective, known);
      return fmt::format("expected one of {}, found \"{}\"{}", join(known, ", "), collective,
                         near.empty() ? "" : "; did you mean " + near + "?");
    }
    BandwidthRun& run =
        runs_.try_emplace({plain_word(collective), ranks, on_node}, known_).first->second;
    if (run.rows.empty()) {
      if (columns_.time_unit_s) run.unit_s = columns_.time_unit_s;
      run.ranks = static_cast<int>(ranks);
      if (on_node >= 1 && on_node <= ranks) run.ranks_per_node = static_cast<int>(on_node);
      if (test) run.titles.emplace(TitleStrength::statement, test);
    }
    run.rows.push_back(row);
    return "";
  }

  /// Names the collective of a table whose cells do not. A line above the table or the name of the
  /// file counts like a command. Otherwise the columns decide, and if they say nothing it is
  /// all-reduce.
  void name_collective(BandwidthRun& run) {
    if (!run.titles.empty() || log_.options().collective || known_.unit_s) return;
    const std::string file = std::filesystem::path(log_.source()).filename().string();
    const BandwidthTest* named = title_ ? title_ : test_named(file);
    if (named) run.titles.emplace(TitleStrength::command, named);
    run.titles.emplace(TitleStrength::mention, test_of(Collective::all_reduce));
    const BandwidthRow& row = run.rows.back();
    const bool has_busbw =
        std::ranges::any_of(row.timings, [](const Timing& t) { return t.busbw.has_value(); });
    if (!named && !row.reduces && !row.count && !has_busbw)
      log_.note("the table does not name its collective, so it is taken as all-reduce");
  }

  Columns columns_;
  std::size_t header_number_ = 0;         // its line
  bool below_header_ = false;             // the last line that counted was one
  const BandwidthTest* title_ = nullptr;  // above the table
  std::optional<DType> named_type_;
  std::map<std::tuple<std::string, double, double>, BandwidthRun> runs_;  // by what the cells say
  BandwidthRun known_;
  BandwidthLog log_;
};

/// With blanks between the columns, or without a header.
bool is_plain_table(std::string_view head) {
  bool begins = true;  // lines before are rows, even if they cannot be read
  for (std::string_view line; !(line = next_line_of(head)).empty();) {
    if (is_header(columns_of_header(line))) return true;
    if (begins && columns_of_plain_row(line).known()) return true;
    const std::size_t end = line.find_first_of(",;\t");
    begins = begins && end != std::string_view::npos && number_of(line.substr(0, end));
  }
  return false;
}

bool is_table(std::string_view head) {
  if (contains(head, "[SUMMARY REPORT]") && is_plain_table(head)) return true;  // of hccl_demo
  const Columns columns = columns_of_header(next_line_of(head));
  return is_header(columns) && columns.separator != '\0';
}

}  // namespace

const LogFormat kTable = {is_table, read_lines<TableReader>};
const LogFormat kPlainTable = {is_plain_table, read_lines<TableReader>};

// JSON becomes a table: each object is a row, and each key a column.
//
// - nccl-tests -J file (2025 on) is {version, config{devices[]}, results[{size, count, type,
//   out_of_place{}, in_place{}}]}. A file is one run. Its command line names the test, but like a
//   title of a text it is only believed if the bandwidths agree.
// - rccl-tests -x FILE -Z json writes flat objects, one a line (to mid-2025) or in a list. They
//   have the columns of its CSV.

namespace {

using simdjson::dom::element;
using JsonRow = std::vector<std::pair<std::string, std::string>>;

/// The object that begins with the brace at `at`, up to the brace that closes it; to the end if
/// none does. Braces are counted outside of strings; a backslash in a string hides the next
/// character.
std::string_view object_at(std::string_view text, std::size_t at) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && c == '{')
      ++depth;
    else if (!quoted && c == '}' && --depth == 0)
      return text.substr(at, i + 1 - at);
  }
  return text.substr(at);
}

/// Where the first line opens an object, after its label; npos: none does.
std::size_t first_object(std::string_view text) {
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    // A key with a colon looks like a label, so that only what is before the brace is asked.
    const std::size_t brace = line.find('{');
    if (brace != std::string_view::npos && without_label(line.substr(0, brace)).empty())
      return to_index(line.data() - text.data()) + brace;
  }
  return std::string_view::npos;
}

/// The first object, without a launcher's labels. The label of its first line is taken off every
/// line that has it. Lines without it are another program's, and dropped.
std::string without_launcher(std::string_view text) {
  const std::size_t at = first_object(text);
  if (at == std::string_view::npos) return "";
  const std::size_t begin = text.rfind('\n', at) + 1;  // 0 after npos
  const std::string_view label = text.substr(begin, at - begin);
  if (trim(label).empty()) return std::string(object_at(text, at));
  std::string own;
  for (std::string_view rest = text.substr(begin); !rest.empty();)
    if (const std::string_view line = take_line(rest); line.starts_with(label))
      own.append(line.substr(label.size())).push_back('\n');
  return std::string(object_at(own, 0));
}

/// Empty for null and for what is not there. Without what parts the cells of a table.
std::string cell_text(const simdjson::simdjson_result<element>& value) {
  std::string text = value.error() || value.is_null() ? "" : simdjson::minify(value.value_unsafe());
  std::erase_if(text, [](char c) { return c == '"' || c == ','; });
  return std::string(trim(text));
}

/// Adds the object's values under their keys: "size", and "out_of_place_time" of one inside.
/// Numbers inside are those of nccl-tests, which prints six decimals.
void add_cells(const simdjson::dom::object& object, const std::string& prefix, JsonRow& row) {
  for (const auto& [key, value] : object) {
    const std::string name = prefix + std::string(key);
    double number = 0;
    if (simdjson::dom::object inside; value.get_object().get(inside) == simdjson::SUCCESS)
      add_cells(inside, name + "_", row);
    else if (!prefix.empty() && value.get_double().get(number) == simdjson::SUCCESS)
      row.emplace_back(name, fmt::format("{:.6f}", number));
    else
      row.emplace_back(name, cell_text(element(value)));
  }
}

/// The rows below a header of all keys.
CollectiveLog read_rows(const std::vector<JsonRow>& rows, const trace::InputFile& input,
                        const CollectiveLogOptions& options, const std::string& format,
                        BandwidthRun known) {
  Cells keys;
  for (const JsonRow& row : rows)
    for (const auto& [key, text] : row)
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  TableReader reader(input.name(), options, format, std::move(known));
  const Columns columns = columns_of_titles(keys);
  if (!columns.known()) return reader.finish();
  reader.begin(columns, 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Cells cells(keys.size());
    for (const auto& [key, text] : rows[i])
      cells[to_index(std::ranges::find(keys, key) - keys.begin())] = text;
    reader.row(cells, i + 2, join(cells, ","));
  }
  return reader.finish();
}

/// The listed ranks, the test by the command line, and whether results were wrong.
BandwidthRun said_besides(const element& root) {
  BandwidthRun known;
  simdjson::dom::array devices;
  if (root["config"]["devices"].get(devices) == simdjson::SUCCESS)
    for (const element d : devices)
      known.listed.push_back(
          {.rank = count_of(cell_text(d["rank"]), 0).value_or(std::ssize(known.listed)),
           .group = count_of(cell_text(d["group"]), 0).value_or(0),
           .host = cell_text(d["hostname"]),
           .device = cell_text(d["device"])});
  // One word an argument, or one text.
  if (element args; root["args"].get(args) == simdjson::SUCCESS)
    if (const BandwidthTest* test = test_in(simdjson::minify(args)))
      known.titles.emplace(TitleStrength::command, test);
  known.failed = cell_text(root["out_of_bounds"]["okay"]) == "false";
  known.unit_s = 1e-6;
  return known;
}

bool has_rccl_row(std::string_view head) {
  return contains(head, "\"inPlace\"") && contains(head, "\"algBw\"");
}

bool has_nccl_object(std::string_view head) {
  const std::size_t first = first_object(head);
  if (first == std::string_view::npos) return false;
  head.remove_prefix(first);
  // A PyTorch trace names its nccl_version too; its process groups may fill the head before the
  // first event.
  for (const char* key :
       {"\"traceEvents\"", "\"distributedInfo\"", "\"schemaVersion\"", "\"deviceProperties\""})
    if (contains(head, key)) return false;
  return contains(head, "\"nccl_version\"") || contains(head, "\"out_of_place\"");
}

CollectiveLog read_nccl_tests_json(trace::InputFile& input, const CollectiveLogOptions& options) {
  const trace::PaddedText text(without_launcher(input.read_all().view()));
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(text.data(), text.size(), false).get(root))
    throw InputError(input.name(),
                     fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  simdjson::dom::array results;
  if (root["results"].get(results) != simdjson::SUCCESS)
    throw InputError(input.name(), "expected an array \"results\" of nccl-tests, found none");
  std::vector<JsonRow> rows;
  for (const element& result : results)
    if (simdjson::dom::object object; result.get_object().get(object) == simdjson::SUCCESS)
      add_cells(object, "", rows.emplace_back());
  return read_rows(rows, input, options, "nccl-tests JSON", said_besides(root));
}

/// An object that cannot be parsed becomes a row that the table refuses, so that it is counted.
CollectiveLog read_rccl_tests_json(trace::InputFile& input, const CollectiveLogOptions& options) {
  const trace::PaddedText whole = input.read_all();
  const std::string_view text = whole.view();
  simdjson::dom::parser parser;
  std::vector<JsonRow> rows;
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at)) {
    const std::string_view object = object_at(text, at);
    at += std::max<std::size_t>(1, object.size());
    const trace::PaddedText padded(object);
    simdjson::dom::object values;
    const bool broken = parser.parse(padded.data(), padded.size(), false).get_object().get(values);
    if (broken && !rows.empty())
      rows.push_back({{"size", replaced(object.substr(0, object.find('\n')), ",", " ")}});
    else if (!broken && !values["size"].error() && !values["time"].error())
      add_cells(values, "", rows.emplace_back());
  }
  return read_rows(rows, input, options, "rccl-tests JSON", {});
}

}  // namespace

const LogFormat kNcclTestsJson = {has_nccl_object, read_nccl_tests_json};
const LogFormat kRcclTestsJson = {has_rccl_row, read_rccl_tests_json};

}  // namespace linerate::bench_logs
