// Cells become numbers here, for all formats of nccl-tests. A number keeps the interval of what it
// may have been before it was rounded (printed_number.hpp), because the judge compares intervals.
#include "linerate/bench_logs/bandwidth_rows.hpp"

#include <algorithm>

#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

constexpr double kLargestBytes = 1e15;

/// The cell as number_of() reads it, with groups of three digits joined: "1,048,576" and "32_768".
/// `whole`: the number has no decimals. Otherwise "1,234.50" is read, and "4,120" is not, because
/// its comma may be a decimal point. Empty: no such number.
std::string plain_digits(const std::string& cell, bool whole) {
  const std::size_t first = cell.find_first_of(",_"), point = cell.find('.');
  if (first == std::string::npos) return cell;
  const char mark = cell[first];
  const std::string before = cell.substr(0, point), digits = replaced(before, {&mark, 1}, "");
  std::string grouped = digits;
  for (std::size_t i = digits.size(); i > 3; i -= 3) grouped.insert(i - 3, 1, mark);
  const bool certain =
      whole || mark == '_' || point != std::string::npos || before.rfind(mark) > first;
  if (!certain || grouped != before || first > point || digits[0] == '0' ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return {};
  return replaced(cell, {&mark, 1}, "");
}

std::optional<double> whole_number(const Cells& cells, int column) {
  return number_of(plain_digits(cell_at(cells, column), true));
}

double seconds_or_none(const Cells& cells, int column) {
  return std::max(0.0, number_of(plain_digits(cell_at(cells, column), false)).value_or(0));
}

std::optional<Interval> range_at(const Cells& cells, int column) {
  const auto printed = printed_number(cell_at(cells, column));
  return printed ? std::optional(printed->range) : std::nullopt;
}

Timing timing_of(const Cells& cells, const TimingColumns& columns) {
  Timing t;
  const auto time = printed_number(plain_digits(cell_at(cells, columns.time), false));
  if (!time || time->value <= 0) return t;
  t.time = time->value, t.time_range = time->range;
  t.algbw = range_at(cells, columns.algbw), t.busbw = range_at(cells, columns.busbw);
  t.low = seconds_or_none(cells, columns.low), t.high = seconds_or_none(cells, columns.high);
  const auto wrong = number_at(cells, columns.wrong);
  if (columns.wrong >= 0) t.checked = wrong.has_value();
  t.wrong = wrong.value_or(0);
  return t;
}

}  // namespace

std::optional<BandwidthRow> row_of(const Cells& cells, const Columns& columns) {
  BandwidthRow row;
  const auto size = whole_number(cells, columns.bytes);
  if (!size || *size < 0 || *size * columns.bytes_unit > kLargestBytes) return std::nullopt;
  row.bytes = *size * columns.bytes_unit;
  if (columns.dtype >= 0) {
    const auto type = dtype_of_log(cell_at(cells, columns.dtype));
    if (!type) return std::nullopt;
    row.dtype = *type;
    row.count = whole_number(cells, columns.count);
  }
  if (const std::string redop = lowered(cell_at(cells, columns.redop)); !redop.empty())
    row.none = redop == "none", row.reduces = !row.none && redop != "-1";
  if (const auto root = number_at(cells, columns.root)) row.rooted = *root >= 0;
  for (int g = 0; g < 2; ++g) row.timings[g] = timing_of(cells, columns.timings[g]);
  return row;
}

}  // namespace linerate::bench_logs
