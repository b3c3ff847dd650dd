// Private: the cells of one line of a log or table, and what its columns are by the words of its
// header.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::bench_logs {

using Cells = std::vector<std::string>;

/// Cells between separators outside quotes and parentheses, without their quotes and the blanks
/// around them; '\0': words. The empty cells outside "| a | b |" are none.
Cells cells_of(std::string_view line, char separator);
/// Empty if the column is absent (-1).
const std::string& cell_at(const Cells& cells, int column);
std::optional<double> number_at(const Cells& cells, int column);

/// Column numbers, -1 if absent.
struct TimingColumns {
  int time = -1, algbw = -1, busbw = -1, wrong = -1, low = -1, high = -1;
};

struct Columns {
  int bytes = -1, count = -1, dtype = -1, redop = -1, root = -1;
  int ranks = -1, nodes = -1, ranks_per_node = -1, gpus_per_rank = -1, collective = -1,
      in_place = -1;
  TimingColumns timings[2];           // out of place, in place
  double bytes_unit = 1;              // bytes
  std::optional<double> time_unit_s;  // absent: the header does not say
  std::size_t cells = 0;
  std::size_t named = 0;  // cells that the header's words explain
  char separator = '\0';  // '\0': blanks

  bool known() const { return bytes >= 0 && (timings[0].time >= 0 || timings[1].time >= 0); }
};

/// Any order, any case: "size(B)", "bytes", "msg_size"; "seconds", "time_us", "latency(ms)",
/// "oop_time"; "algbw", "busbw"; "ranks", "gpus", "ranksPerNode"; "collective", "name", "inPlace".
/// Nothing if units differ within one kind of column.
Columns columns_of_titles(const Cells& titles);
/// Separated by ',', ';', '|', tabs or blanks. Not known() if size or time is missing.
Columns columns_of_header(std::string_view line);
/// Without a header: bytes,seconds[,ranks[,collective[,type]]]. Not known() for anything else.
Columns columns_of_plain_row(std::string_view line);

}  // namespace linerate::bench_logs
