// nccl-tests and rccl-tests text from 2017 to today. Rows are read by the words of the header above
// them, never by position: the columns differ per era, per test and per build option.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <span>

#include "linerate/bench_logs/bandwidth_layout.hpp"
#include "linerate/bench_logs/bandwidth_log.hpp"
#include "linerate/bench_logs/line_label.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

using Words = std::vector<std::string_view>;

std::optional<double> at(std::span<const std::string_view> words, int column) {
  return column >= 0 ? number_of(words[static_cast<std::size_t>(column)]) : std::nullopt;
}

std::optional<Interval> range_at(std::span<const std::string_view> words, int column) {
  const auto printed =
      column >= 0 ? printed_number(words[static_cast<std::size_t>(column)]) : std::nullopt;
  return printed ? std::optional(printed->range) : std::nullopt;
}

Timing timing_of(std::span<const std::string_view> words, const Group& g) {
  Timing t;
  const auto time = printed_number(words[0]);
  if (!time || time->value <= 0) return t;
  t.time = time->value, t.time_range = time->range;
  t.algbw = range_at(words, g.algbw), t.busbw = range_at(words, g.busbw);
  if (g.check >= 0) t.checked = at(words, g.check).has_value();
  t.wrong = at(words, g.wrong).value_or(0);
  t.low = at(words, g.low).value_or(0), t.high = at(words, g.high).value_or(0);
  return t;
}

bool is_whole(std::string_view word) {
  return !word.empty() && word.size() < 19 &&
         word.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A number, or one with the suffix of a unit, which no version prints: "1K", "4MiB".
bool is_size(std::string_view word) {
  constexpr std::size_t kLongestUnit = 3;
  const std::size_t end = word.find_last_of("0123456789.") + 1;
  return word.size() - end <= kLongestUnit && number_of(word.substr(0, end));
}

/// "sum", "none", "prod": a word that is no number.
bool is_redop(std::string_view word) {
  return !number_of(word) && word.find_first_not_of(
                                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR"
                                 "STUVWXYZ_") == std::string_view::npos;
}

/// Two words of a time stamp (-T) may follow the last column.
Words without_time_stamp(Words words) {
  while (words.size() > 3 &&
         (words.back().find(':') != std::string_view::npos ||
          words.back().find('-', 1) != std::string_view::npos) &&
         !number_of(words.back()))
    words.pop_back();
  return words;
}

/// Where a run has no times out of place, nccl-tests leaves their columns blank. A row that was cut
/// behind its first group has no such gap.
bool in_place_stands_alone(const Words& words, std::size_t next, const Layout& l) {
  constexpr std::ptrdiff_t kBlankColumns = 32;
  if (l.groups.size() != 2) return false;
  const auto group = static_cast<std::size_t>(l.groups[1].words);
  if (words.size() != next + group + (l.root ? 1 : 0)) return false;
  const std::string_view time = words[words.size() - group],
                         before = words[words.size() - group - 1];
  return time.data() - (before.data() + before.size()) >= kBlankColumns;
}

/// `words` begin with size, count and type. nullopt: cut off, or of another layout.
std::optional<BandwidthRow> parse_row(const Words& line, const Layout& l, bool with_header) {
  const Words words = without_time_stamp(line);
  BandwidthRow row;
  row.bytes = number_of(words[0]).value_or(0);
  row.count = number_of(words[1]);
  row.dtype = *dtype_of_log(words[2]);
  std::size_t next = 3;
  // A test that does not reduce leaves the value out in some eras, and the column in others.
  const bool redop = next < words.size() && is_redop(words[next]) && l.redop;
  if (redop) row.none = words[next++] == "none", row.reduces = !row.none;
  if (!redop && with_header) row.reduces = false;
  const std::size_t left = words.size() - next;
  const bool lone = in_place_stands_alone(words, next, l);
  const std::size_t groups = lone ? static_cast<std::size_t>(l.groups[1].words) : l.group_words();
  const bool root = l.root && left == groups + 1;
  if (!root && left != groups) return std::nullopt;
  if (root) {
    const auto number = number_of(words[next++]);
    if (!number || *number < -1 || *number != std::floor(*number)) return std::nullopt;
    row.rooted = *number >= 0;
  } else if (with_header || redop) {
    row.rooted = false;
  }
  const std::span<const std::string_view> all(words);
  for (std::size_t g = lone ? 1 : 0; g < l.groups.size(); ++g) {
    row.timings[l.in_place_alone ? 1 : g] = timing_of(all.subspan(next), l.groups[g]);
    next += static_cast<std::size_t>(l.groups[g].words);
  }
  return row.timings[0].time > 0 || row.timings[1].time > 0 ? std::optional(row) : std::nullopt;
}

/// The words from "size count type" on, whatever stands before them; empty where the line has no
/// such three words.
Words row_words(std::string_view line) {
  Words words = words_of(line);
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (words[i].find('#') != std::string_view::npos) return {};  // commented out
    if (!is_whole(words[i + 1]) || !dtype_of_log(words[i + 2])) continue;
    // A label may cling to the size.
    const std::size_t digits = words[i].find_last_not_of("0123456789") + 1;
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

TitleStrength strength_of(std::string_view line) {
  if (line.find("Collective test ") != std::string_view::npos) return TitleStrength::statement;
  const std::size_t name = line.rfind("_perf");
  const bool arguments =
      name != std::string_view::npos && line.find(" -", name) != std::string_view::npos;
  return arguments ? TitleStrength::command : TitleStrength::mention;
}

/// Cuts a log into runs.
class Scanner {
 public:
  explicit Scanner(BandwidthLog& log) : log_(log) {}

  std::vector<BandwidthRun> scan(trace::Input& input) {
    std::string_view line;
    while (input.next_line(line)) {
      line_number_ = input.line_number();
      read_line(line);
    }
    return std::move(runs_);
  }

  void read_line(std::string_view text) {
    const std::string line = plain_blanks(text), unlabelled = without_repeated_label(line);
    const Words row = row_words(unlabelled);
    if (!row.empty()) return read_row(row, line);
    const bool concluded = line.find("Collective test concluded") != std::string_view::npos;
    if (const BandwidthTest* test = test_in(line)) {
      if (concluded)
        run().titles.emplace_back(TitleStrength::statement, test);
      else
        pending_.emplace_back(strength_of(line), test);
    }
    if (concluded || line.find("Collective test starting") != std::string_view::npos)
      closed_ = has_rows_;
    const std::size_t hash = line.find('#');
    if (hash != std::string_view::npos)
      read_comment(words_of(line.substr(hash)), line);
    else if (line.find("algbw") != std::string_view::npos)
      read_header(words_of(without_label(line)));  // the mark was lost on the way
    else if (is_size(first_word_of(line)) && layout_.known() && words_of(line).size() >= 7)
      log_.refuse(quoted_line(line_number_, line));
    else if (!trim(line).empty())
      text_between_ = true;
  }

  bool found_rows() const { return !runs_.empty() && !runs_.back().rows.empty(); }
  bool found_header() const { return layout_.known(); }

 private:
  static std::string_view first_word_of(std::string_view line) {
    const Words words = words_of(line);
    return words.empty() ? std::string_view() : words.front();
  }

  BandwidthRun& run() {
    if (runs_.empty()) runs_.emplace_back();
    return runs_.back();
  }
  void begin_run() {
    runs_.emplace_back();
    has_header_ = has_rows_ = closed_ = false;
  }
  /// Where rank lines and settings stand: in front of the header. Rows that could not be read are
  /// of a run, too.
  void begin_run_behind_table() {
    if (has_header_ || has_rows_) begin_run();
    closed_ = false;
  }

  void read_header(const Words& words) {
    const Layout l = layout_of(words);
    if (!l.known()) return;
    if (has_rows_) begin_run();
    closed_ = false;
    layout_ = l;
    layout_.in_place_alone = l.groups.size() == 1 && in_place_alone_;
    in_place_alone_ = false;
    has_header_ = true;
    run().is_of_2017 = l.is_of_2017;
    take_titles();
  }

  void read_comment(const Words& words, std::string_view line) {
    read_header(words);
    if (line.find("# nThread") != std::string_view::npos) begin_run_behind_table();
    if (line.find("Avg bus bandwidth") != std::string_view::npos) closed_ = true;
    // Above the header, over the columns of each.
    if (line.find("in-place") != std::string_view::npos)
      in_place_alone_ = line.find("out-of-place") == std::string_view::npos;
    if (line.find("Out of bounds values") != std::string_view::npos &&
        line.find("FAILED") != std::string_view::npos)
      run().failed = true;
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
    if (words.size() < 3 || (words[0] != "#Rank" && (words[0] != "#" || words[1] != "Rank")))
      return;
    const auto rank = number_of(words[0] == "#" ? words[2] : words[1]);
    if (!rank || *rank < 0 || *rank >= 1e7 || *rank != std::floor(*rank)) return;
    begin_run_behind_table();
    const double group = number_of(after("Group")).value_or(0);
    run().listed.add(static_cast<int>(*rank),
                     group >= 0 && group < 1e7 ? static_cast<int>(group) : 0, after("on"),
                     after("device"));
  }

  void take_titles() {
    run().titles.insert(run().titles.end(), pending_.begin(), pending_.end());
    pending_.clear();
  }

  /// Whether a row that follows without a header of its own belongs to another run: behind a
  /// footer, behind the command line of a test, or where the sizes begin again behind some text.
  bool begins_run(double bytes) {
    if (run().rows.empty()) return false;
    const bool command = std::any_of(pending_.begin(), pending_.end(), [](const auto& title) {
      return title.first != TitleStrength::mention;
    });
    const bool again = bytes <= run().rows.back().bytes;
    return closed_ || (again && (command || (text_between_ && !has_header_)));
  }

  void read_row(const Words& words, std::string_view line) {
    // An interrupted row is not one of another layout.
    std::optional<BandwidthRow> row =
        parse_row(words, layout_.known() ? layout_ : usual_layout(), layout_.known());
    if (!row && layout_.known() && !has_header_) row = parse_row(words, usual_layout(), false);
    if (!row) {
      has_rows_ = true;
      log_.refuse(quoted_line(line_number_, line));
      return;
    }
    if (begins_run(row->bytes)) begin_run();
    has_rows_ = true;
    if (run().rows.empty()) take_titles();
    text_between_ = false;
    // Nothing to learn from no bytes.
    if (row->bytes > 0) run().rows.push_back(*row);
  }

  BandwidthLog& log_;
  std::size_t line_number_ = 0;
  std::vector<BandwidthRun> runs_;
  Layout layout_;
  bool has_header_ = false;      // of the present run
  bool has_rows_ = false;        // read or refused
  bool in_place_alone_ = false;  // the next header is of in place only
  bool closed_ = false;          // its footer was read
  bool text_between_ = false;    // since the last row
  std::vector<std::pair<TitleStrength, const BandwidthTest*>> pending_;
};

}  // namespace

bool is_nccl_tests(std::string_view head) {
  BandwidthLog log("", "", {});
  Scanner scanner(log);
  while (!head.empty()) {
    const std::size_t end = std::min(head.find('\n'), head.size());
    const std::string_view line = head.substr(0, end);
    if (line.find("# nThread ") != std::string_view::npos ||
        line.find("# nccl-tests version") != std::string_view::npos ||
        line.find("# rccl-tests") != std::string_view::npos)
      return true;
    scanner.read_line(line);
    if (scanner.found_rows() || scanner.found_header()) return true;
    head.remove_prefix(std::min(end + 1, head.size()));
  }
  return false;
}

CollectiveLog read_nccl_tests(trace::Input& input, const CollectiveLogOptions& options) {
  BandwidthLog log(input.name(), "nccl-tests", options);
  for (BandwidthRun& run : Scanner(log).scan(input)) log.add(std::move(run));
  return log.finish();
}

}  // namespace linerate::bench_logs
