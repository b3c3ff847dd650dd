// nccl-tests and rccl-tests text from 2017 to today. Rows are read by the words of the header above
// them and never by position. Columns differ by era, by test and by build option.
//
// The scanner cuts a log into runs, and collects rank lines, titles and rows of each. A run begins
// with settings or rank lines, or with a header after rows. Logs of scripts may lack all of these.
// Then a new run begins after a footer, after another command line, or if sizes begin again after
// some text.
//
// Example. A log has rank lines, a header, rows of 8, 16 and 32 bytes, "# Avg bus bandwidth", and
// rows of 8 and 16 bytes. The footer closes the first run, so the last two rows are a second one,
// under the same header and without ranks of its own.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

using Words = std::vector<std::string_view>;
constexpr std::string_view kDigits = "0123456789";

/// What the line above the rows says about them.
struct Header {
  Columns columns;
  bool is_of_2017 = false;    // "bytes" and "N"
  bool is_in_place = false;   // its one group of times
  bool counts_wrong = false;  // until 2022 "error" is a difference, which may be small and right
};

/// The header's own words: "size count type redop root time algbw busbw #wrong time algbw busbw
/// #wrong". Other words before "time" are a label, and are dropped. Nothing is known if one of
/// size, count, type, time or algbw is missing.
Header header_of(Words words) {
  bool timed = false;
  for (std::string_view& w : words) w.remove_prefix(std::min(w.find_first_not_of('#'), w.size()));
  std::erase_if(words, [&timed](std::string_view w) {
    timed = timed || is_among(w, "time cputime");
    return w.empty() || w == "timestamp" ||
           (!timed && !is_among(w, "size bytes count N type redop op root"));
  });
  if (words.size() < 4 || !is_among(words[0], "size bytes") || !is_among(words[1], "count N") ||
      words[2] != "type")
    return {};
  Cells titles(words.begin(), words.end());
  if (titles[3] == "op") titles[3] = "redop";
  const Columns columns = columns_of_titles(titles);
  if (!columns.has("time", 0) || !columns.has("algbw", 0)) return {};
  return {.columns = columns,
          .is_of_2017 = titles[0] == "bytes" && titles[1] == "N",
          .counts_wrong = std::find(words.begin(), words.end(), "wrong") != words.end()};
}

bool is_whole(std::string_view word) {
  return !word.empty() && word.size() < 19 && word.find_first_not_of(kDigits) == word.npos;
}

/// "sum", "none", "prod": a word that is no number.
bool is_redop(char c) { return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// Two words of a time stamp (-T) may follow the last column.
Words without_time_stamp(Words words) {
  while (words.size() > 3 && words.back().find_first_of(":-", 1) != std::string_view::npos &&
         !number_of(words.back()))
    words.pop_back();
  return words;
}

/// Whether the last columns come after a gap. If a run has no times out of place, nccl-tests leaves
/// their columns blank, at least 32 characters. A row that was cut after its first group has no
/// gap.
bool stands_after_gap(const Words& words, std::size_t last) {
  constexpr std::ptrdiff_t kBlankColumns = 32;
  const std::string_view time = words[words.size() - last], before = words[words.size() - last - 1];
  return time.data() - (before.data() + before.size()) >= kBlankColumns;
}

/// A cell for each column, empty if the row leaves the column blank. Words alone do not say which
/// column is blank, so three known cases are tried: the operation, the first group of times, the
/// root. nullopt: the row was cut off, or has another layout. `line` begins with size, count and
/// type.
std::optional<Cells> cells_under(const Words& line, const Columns& c) {
  const Words words = without_time_stamp(line);
  Cells cells(words.begin(), words.end());
  const auto leave_blank = [&cells](std::size_t at, std::size_t n) {
    cells.insert(cells.begin() + static_cast<std::ptrdiff_t>(at), n, "");
  };
  // A test that does not reduce leaves the value out in some eras, and the column in others.
  const bool has_redop = words.size() > 3 && std::ranges::all_of(words[3], is_redop);
  if (c.has("redop") && !has_redop) leave_blank(3, 1);
  if (c.has("time", 0) && c.has("time", 1)) {
    const std::size_t at = c.places.at({"time", 1}), first = at - c.places.at({"time", 0});
    const std::size_t second = c.cells - at;
    if (cells.size() + first == c.cells && stands_after_gap(words, second))
      leave_blank(cells.size() - second, first);
  }
  if (c.has("root") && cells.size() + 1 == c.cells) leave_blank(c.places.at({"root", 0}), 1);
  return cells.size() == c.cells ? std::optional(cells) : std::nullopt;
}

/// One row under a header. `stated`: the log has the header, so a missing root or operation means
/// that the test has none. nullopt: it is no row of this layout, or was not timed.
std::optional<BandwidthRow> parse_row(const Words& line, const Header& header, bool stated) {
  const auto cells = cells_under(line, header.columns);
  BandwidthRow row;
  if (!cells || !unread(*cells, header.columns, row).empty()) return std::nullopt;
  const std::string& root = header.columns.cell(*cells, "root");
  if (!root.empty() && !count_of(root, -1)) return std::nullopt;
  if (root.empty() && (stated || row.reduces)) row.rooted = false;
  if (stated && !row.reduces) row.reduces = false;
  for (Timing& t : row.timings) {
    if (!header.counts_wrong) t.wrong = 0;
    t.in_place = t.in_place || header.is_in_place;
  }
  return row;
}

/// The words of a row, whatever label precedes them. A row begins with a size, a whole number and
/// the name of an element type. Empty: the line has no such words, or a '#' before them.
Words row_words(std::string_view line) {
  Words words = words_of(line);
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (words[i].find('#') != std::string_view::npos) return {};  // commented out
    if (!is_whole(words[i + 1]) || !dtype_of_log(words[i + 2])) continue;
    // A label may cling to the size.
    const std::size_t digits = words[i].find_last_not_of(kDigits) + 1;
    if (digits == words[i].size() ||
        (digits > 0 && std::isalnum(static_cast<unsigned char>(words[i][digits - 1])) != 0))
      continue;
    words[i].remove_prefix(digits);
    if (!is_whole(words[i])) continue;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
    return words;
  }
  return {};
}

/// How far a line that names a test is believed. "Collective test starting" is nccl-tests' own
/// statement. A name with options after it is a command that ran or was meant to run. Any other
/// name is a mention.
TitleStrength strength_of(std::string_view line) {
  if (contains(line, "Collective test ")) return TitleStrength::statement;
  return contains(line.substr(line.rfind("_perf")), " -") ? TitleStrength::command
                                                          : TitleStrength::mention;
}

/// Cuts a log into runs. Titles come before the run that they are about, so they wait in `pending_`
/// until its first row or header.
class Scanner {
 public:
  Scanner(const std::string& name, const CollectiveLogOptions& options)
      : log_(name, "nccl-tests", options) {}

  /// A line is tried as a row first. If it is none, it may name a test, open or close a run, be a
  /// header, or list a rank. A line of numbers under a header that is no row counts as refused.
  void line(const std::string& line, std::size_t number) {
    line_number_ = number;
    const std::string unlabelled = without_repeated_label(line);
    const Words words = words_of(line), row = row_words(unlabelled);
    if (!row.empty()) return read_row(row, line);
    const bool concluded = contains(line, "Collective test concluded");
    if (const BandwidthTest* test = test_in(line)) {
      if (concluded)
        run().titles.emplace(TitleStrength::statement, test);
      else
        pending_.emplace(strength_of(line), test);
    }
    if (concluded || contains(line, "Collective test starting")) closed_ = has_rows_;
    const std::size_t hash = line.find('#');
    if (hash != std::string_view::npos)
      read_comment(words_of(line.substr(hash + 1)), line);
    else if (contains(line, "algbw"))
      read_header(words);  // the mark was lost on the way
    else if (found_header() && words.size() >= 7 && number_of(words[0]))
      log_.refuse(line_number_, line);
    else if (!words.empty())
      text_between_ = true;
  }

  CollectiveLog finish() {
    for (BandwidthRun& run : runs_) log_.add(std::move(run));
    return log_.finish();
  }

  bool found_rows() const { return !runs_.empty() && !runs_.back().rows.empty(); }
  bool found_header() const { return header_.columns.known(); }

 private:
  BandwidthRun& run() {
    if (runs_.empty()) runs_.emplace_back();
    return runs_.back();
  }
  void begin_run() {
    runs_.emplace_back();
    has_header_ = has_rows_ = closed_ = false;
  }
  /// Settings and rank lines come before the header. Rows that could not be read are of a run, too.
  void begin_run_above_header() {
    if (has_header_ || has_rows_) begin_run();
    closed_ = false;
  }

  void read_header(const Words& words) {
    const Header header = header_of(words);
    if (!header.columns.known()) return;
    if (has_rows_) begin_run();
    closed_ = false;
    header_ = header;
    header_.is_in_place = std::exchange(in_place_alone_, false) && !header.columns.has("time", 1);
    has_header_ = true;
    run().is_of_2017 = header.is_of_2017;
    take_titles();
  }

  void read_comment(const Words& words, std::string_view line) {
    read_header(words);
    if (contains(line, "# nThread")) begin_run_above_header();
    if (contains(line, "Avg bus bandwidth")) closed_ = true;
    // Above the header, over the columns of each.
    if (contains(line, "in-place")) in_place_alone_ = !contains(line, "out-of-place");
    if (contains(line, "Out of bounds values") && contains(line, "FAILED")) run().failed = true;
    read_rank(words);
  }

  /// "#  Rank  0 Group  0 Pid  1234 on host device  0 [0x07] NAME"; 2017: "#   Rank  0 on host
  /// device ...".
  void read_rank(const Words& words) {
    const auto after = [&words](std::string_view key) -> std::string_view {
      for (std::size_t i = 0; i + 1 < words.size() && i < 10; ++i)
        if (words[i] == key) return words[i + 1];
      return {};
    };
    if (words.empty() || words[0] != "Rank") return;
    const auto rank = count_of(after("Rank"), 0);
    if (!rank) return;
    begin_run_above_header();
    run().listed.push_back({.rank = *rank,
                            .group = count_of(after("Group"), 0).value_or(0),
                            .host = std::string(after("on")),
                            .device = std::string(after("device"))});
  }

  void take_titles() {
    run().titles.insert(pending_.begin(), pending_.end());
    pending_.clear();
  }

  /// Whether a row without a header of its own belongs to another run. It does after a footer. If
  /// its size is no larger than the last one, it also does after the command line of a test, or
  /// after some text.
  bool begins_run(double bytes) {
    if (run().rows.empty()) return false;
    const bool command = !pending_.empty() && pending_.rbegin()->first != TitleStrength::mention;
    const bool again = bytes <= run().rows.back().bytes;
    return closed_ || (again && (command || (text_between_ && !has_header_)));
  }

  /// Reads a row under the present header, or else under the usual one of every era from 2019 on.
  void read_row(const Words& words, std::string_view line) {
    // An interrupted row is not one of another layout.
    std::optional<BandwidthRow> row;
    if (found_header()) row = parse_row(words, header_, true);
    if (!row && !has_header_) row = parse_row(words, usual_, false);
    if (row && begins_run(row->bytes)) begin_run();
    has_rows_ = true;
    if (!row) return log_.refuse(line_number_, line);
    if (run().rows.empty()) take_titles();
    text_between_ = false;
    // No bytes, no information.
    if (row->bytes > 0) run().rows.push_back(*row);
  }

  BandwidthLog log_;
  std::size_t line_number_ = 0;
  std::vector<BandwidthRun> runs_;
  Header header_;
  /// Without a header (a row quoted in prose): what every era from 2019 on prints.
  const Header usual_ = header_of(
      words_of("size count type redop root time algbw busbw #wrong time algbw busbw #wrong"));
  bool has_header_ = false;      // of the present run
  bool has_rows_ = false;        // read or refused
  bool in_place_alone_ = false;  // the next header is of in place only
  bool closed_ = false;          // its footer was read
  bool text_between_ = false;    // since the last row
  TestTitles pending_;
};

constexpr std::array<std::string_view, 3> kMarks = {"# nThread ", "# nccl-tests version",
                                                    "# rccl-tests"};

}  // namespace

const LogFormat kNcclTests = {
    [](std::string_view head) {
      Scanner scanner("", {});
      while (!head.empty()) {
        const std::string_view line = take_line(head);
        if (std::ranges::any_of(kMarks, [line](auto mark) { return contains(line, mark); }))
          return true;
        scanner.line(plain_blanks(line), 0);
        if (scanner.found_rows() || scanner.found_header()) return true;
      }
      return false;
    },
    read_lines<Scanner>};

}  // namespace linerate::bench_logs
