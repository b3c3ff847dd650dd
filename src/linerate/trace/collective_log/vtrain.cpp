// vTrain's collective tables (VIA-Research/vTrain, trace/):
// size(B),count,type,time(ns),busbw,time(ns),busbw.
#include <fmt/format.h>

#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/collective_log/log_readers.hpp"
#include "linerate/trace/collective_log/log_words.hpp"

namespace linerate::trace {
namespace {

struct Row {
  double bytes = 0, seconds[2] = {0, 0}, bus[2] = {0, 0};
  DType dtype = DType::f32;
};

bool parse_row(std::string_view line, Row& row) {
  const std::vector<std::string> cells = split_outside_parentheses(line, ',');
  if (cells.size() < 5) return false;
  const auto bytes = number_of(cells[0]);
  const auto type = dtype_of_log(cells[2]);
  if (!bytes || !type || *bytes < 1 || *bytes > 9e18) return false;
  row = {.bytes = *bytes, .dtype = *type};
  for (std::size_t g = 0; g < 2 && 4 + 2 * g < cells.size(); ++g) {
    const auto ns = number_of(cells[3 + 2 * g]), bus = number_of(cells[4 + 2 * g]);
    if (ns && *ns > 0) row.seconds[g] = *ns * 1e-9;
    if (bus) row.bus[g] = *bus * 1e9;
  }
  return row.seconds[0] > 0 || row.seconds[1] > 0;
}

}  // namespace

bool is_vtrain(std::string_view head) {
  const std::string_view first = head.substr(0, head.find('\n'));
  return first.find("size(B)") != std::string_view::npos &&
         first.find("time(ns)") != std::string_view::npos &&
         first.find(',') != std::string_view::npos;
}

CollectiveLog read_vtrain(Input& input, const CollectiveLogOptions& options) {
  CollectiveLog log{.source = input.name(), .format = "vTrain CSV"};
  std::string_view line;
  input.next_line(line);
  std::vector<double> ratios;
  std::size_t refused = 0;
  while (input.next_line(line)) {
    if (trim(line).empty()) continue;
    Row row;
    if (!parse_row(line, row)) {
      ++refused;
      continue;
    }
    for (int g = 0; g < 2; ++g) {
      if (row.seconds[g] <= 0) continue;
      log.rows.push_back({.dtype = row.dtype,
                          .in_place = g == 1,
                          .bytes = static_cast<std::int64_t>(row.bytes),
                          .seconds = row.seconds[g]});
      if (row.bus[g] > 0) ratios.push_back(row.bus[g] * row.seconds[g] / row.bytes);
    }
  }
  // The table names neither the collective nor the ranks; busbw/algbw of the largest message does.
  const double ratio = ratios.empty() ? 0 : ratios.back();
  const Collective collective = options.collective.value_or(
      ratio > 0.99 ? Collective::all_reduce
                   : collective_named_in(input.name()).value_or(Collective::all_reduce));
  const std::optional<int> shown =
      collective == Collective::all_reduce ? ranks_of_all_reduce(ratio) : std::nullopt;
  const int ranks = settle_ranks(input.name(), shown, options.ranks);
  for (CollectiveSample& row : log.rows) row.collective = collective, row.ranks = ranks;
  if (refused > 0)
    log.notes.push_back(fmt::format("{}: {} rows could not be read", input.name(), refused));
  return log;
}

}  // namespace linerate::trace
