// The summary of DeepSpeed's communication logger. It has a line for each operation, then a row for
// each size: "64.0 MB 24 190.05 7.92 67.79 118.63". The numbers are count, total and mean latency
// in ms, and two bandwidths in Gbit/s. KB is 1024 bytes. Sizes of gathers and scatters are one
// rank's part.
//
// The log does not say how many ranks ran. The bandwidths do: in the row above, 118.63 / 67.79 is
// 1.75, which is 2 (n - 1) / n for eight ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "linerate/bench_logs/bandwidth_log.hpp"
#include "linerate/bench_logs/columns.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"

namespace linerate::bench_logs {
namespace {

constexpr std::string_view kHeader = "Comm. Op";

struct DeepSpeedRow {
  Collective collective;
  double bytes = 0, seconds = 0;
  Interval tput, busbw;  // as printed
};

/// "64.0 MB", "0B"; nullopt: no size. Takes its words off.
std::optional<double> take_size(std::vector<std::string_view>& words) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  if (words.empty()) return std::nullopt;
  const bool joined = words[0].ends_with('B');
  if (!joined && words.size() < 2) return std::nullopt;
  const std::string_view unit = joined ? words[0].substr(words[0].size() - 1) : words[1];
  const auto number = number_of(joined ? words[0].substr(0, words[0].size() - 1) : words[0]);
  const auto at = std::find(kUnits.begin(), kUnits.end(), unit);
  if (!number || at == kUnits.end()) return std::nullopt;
  words.erase(words.begin(), words.begin() + (joined ? 1 : 2));
  return *number * std::pow(1024.0, at - kUnits.begin());
}

/// Numbers of ranks that a row leaves possible. busbw over tput is (n - 1)/n. For an all-reduce it
/// is twice that in versions that print tput without its factor of 2. For a broadcast or a reduce
/// it is 1, which says nothing about n.
RankRange possible_ranks(const DeepSpeedRow& row) {
  const bool says = row.collective != Collective::broadcast && row.collective != Collective::reduce;
  if (!says || row.tput.low <= 0) return {};
  Interval share = row.busbw.over(row.tput);
  if (row.collective == Collective::all_reduce && share.high >= 1)
    share = {share.low / 2, share.high / 2};
  if (share.high >= 1) return {};
  return {std::ceil(1 / (1 - share.low)), std::floor(1 / (1 - share.high))};
}

bool is_part_of_a_rank(Collective c) {
  return c == Collective::all_gather || c == Collective::reduce_scatter;
}

/// Collects rows first, because sizes of gathers need the number of ranks, which follows from all
/// rows together.
class DeepSpeedReader {
 public:
  void line(std::string_view text, std::size_t number) {
    const std::string plain = plain_blanks(text);
    const std::string_view line = without_label(plain);
    if (line.find(kHeader) != std::string_view::npos) {
      open_ = true;
      return;
    }
    std::vector<std::string_view> words = words_of(line);
    if (!open_ || words.empty()) return;
    if (words.size() == 1) {
      collective_ = collective_named_in(words[0]);
      return;
    }
    const auto bytes = take_size(words);
    if (!bytes) return;  // another program's line
    row(*bytes, words, quoted_line(number, line));
  }

  CollectiveLog finish(const std::string& source, const CollectiveLogOptions& options) {
    CollectiveLog log{.source = source, .format = "DeepSpeed"};
    RankRange possible;
    for (const DeepSpeedRow& r : rows_) possible = possible.with(possible_ranks(r));
    const int ranks = settle_ranks(
        source, possible.single() ? std::optional(static_cast<int>(possible.low)) : std::nullopt,
        options.ranks);
    for (const DeepSpeedRow& r : rows_) {
      if (is_part_of_a_rank(r.collective) && ranks < 1)
        throw InputError(source,
                         fmt::format("DeepSpeed states the size of {} per rank, and its bandwidths "
                                     "do not say how many ranks ran; give --ranks",
                                     name_of(r.collective)));
      const double total = r.bytes * (is_part_of_a_rank(r.collective) ? ranks : 1);
      log.rows.push_back({.collective = r.collective,
                          .ranks = ranks,
                          .says_type = false,
                          .bytes = std::llround(total),
                          .seconds = r.seconds});
    }
    if (!first_refused_.empty()) {
      log.note("rows could not be read; the first is " + first_refused_);
      log.unread = log.notes.back();
    }
    log.note("the latencies of DeepSpeed's logger also hold the wait for late ranks");
    return log;
  }

 private:
  void row(double bytes, const std::vector<std::string_view>& words, const std::string& where) {
    constexpr std::size_t kNumbers = 5;  // count, total, mean, tput, busbw
    if (!collective_) return;            // a send, or another operation that is none
    std::array<std::optional<Printed>, kNumbers> numbers;
    bool whole = words.size() >= kNumbers;
    for (std::size_t i = 0; whole && i < kNumbers; ++i) {
      numbers[i] = printed_number(words[i]);
      whole = numbers[i].has_value();
    }
    if (!whole) {
      if (first_refused_.empty()) first_refused_ = where;
    } else if (bytes > 0 && numbers[2]->value > 0) {
      rows_.push_back(
          {*collective_, bytes, numbers[2]->value * 1e-3, numbers[3]->range, numbers[4]->range});
    }
  }

  bool open_ = false;
  std::optional<Collective> collective_;
  std::vector<DeepSpeedRow> rows_;
  std::string first_refused_;
};

}  // namespace

bool is_deepspeed(std::string_view head) {
  const std::size_t at = head.find(kHeader);
  return at != std::string_view::npos && head.find("Message Size", at) != std::string_view::npos;
}

CollectiveLog read_deepspeed(trace::InputFile& input, const CollectiveLogOptions& options) {
  DeepSpeedReader reader;
  for (std::string_view line; input.next_line(line);) reader.line(line, input.line_number());
  return reader.finish(input.name(), options);
}

}  // namespace linerate::bench_logs
