// algbw and busbw are those of nccl-tests: bytes by time, and that times a factor of the
// collective. An example: an all-reduce of 1 GB on 4 ranks in 100 ms has algbw 10 GB/s. Its busbw
// is 2 * 3/4 of that, 15 GB/s. It can be compared with the link's rate whatever the number of
// ranks.
#include "linerate/report/collective_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/report/time_range.hpp"

namespace linerate::report {
namespace {

// One count stands in the heading, several in a column.
bool has_one_rank_count(const cost::CollectiveTimes& all) {
  return std::all_of(all.times.begin(), all.times.end(), [&](const cost::CollectiveTime& t) {
    return t.ranks == all.times.front().ranks;
  });
}

// A barrier moves nothing and has no rate. A closed form has no interval: nothing was measured.
std::vector<std::string> row_of(const cost::CollectiveTime& t, Collective collective) {
  const auto bytes = static_cast<double>(t.size.value);
  const bool moves = bytes > 0 && t.time.seconds > 0;
  const double rate = moves ? bytes / t.time.seconds : 0;
  return {std::to_string(t.ranks),
          format_size(bytes),
          format_time(t.time.seconds),
          t.fitted ? time_range(t.time.low, t.time.high) : "n/a",
          moves ? format_rate(rate) : "-",
          moves ? format_rate(rate * bus_factor(collective, t.ranks)) : "-",
          t.time.extrapolated ? "extrapolated" : ""};
}

std::string table_of(const cost::CollectiveTimes& all) {
  std::vector<TextColumn> columns = {{"ranks", true},
                                     {"size", true},
                                     {"time", true},
                                     {"90 % interval", true},
                                     {"algbw", true},
                                     {"busbw", true},
                                     {""}};
  std::vector<std::vector<std::string>> rows;
  for (const cost::CollectiveTime& t : all.times) rows.push_back(row_of(t, all.collective));
  if (!has_one_rank_count(all))
    return fmt::format("{}\n{}", name_of(all.collective), text_table(columns, rows));
  columns.erase(columns.begin());
  for (std::vector<std::string>& row : rows) row.erase(row.begin());
  const int ranks = all.times.front().ranks;
  return fmt::format("{} on {} rank{}\n{}", name_of(all.collective), ranks, ranks == 1 ? "" : "s",
                     text_table(columns, rows));
}

}  // namespace

std::string to_text(const cost::CollectiveTimes& all) {
  std::string text = table_of(all);
  const auto any = [&all](auto holds) {
    return std::any_of(all.times.begin(), all.times.end(), holds);
  };
  if (all.collective != Collective::barrier)
    text += "algbw: size / time; busbw: what each link carries, as nccl-tests states it.\n";
  if (any([](const cost::CollectiveTime& t) { return t.time.extrapolated; }))
    text += "extrapolated: outside the measured sizes or rank counts, by the collective's law.\n";
  if (any([](const cost::CollectiveTime& t) { return !t.fitted && t.ranks > 1; }))
    text +=
        "n/a: the links were given, not measured, so a formula prices them with an unknown error. "
        "linerate calibrate measures them.\n";
  for (const std::string& note : all.notes) text += "note: " + note + ".\n";
  return text;
}

std::string to_json(const cost::CollectiveTimes& all) {
  doc::Json list = doc::Json::array();
  for (const cost::CollectiveTime& t : all.times) {
    list.push_back({{"ranks", t.ranks},
                    {"size_bytes", t.size.value},
                    {"time_s", t.time.seconds},
                    {"interval_s", nullptr},
                    {"extrapolated", t.time.extrapolated}});
    if (t.fitted) list.back()["interval_s"] = {t.time.low, t.time.high};
  }
  doc::Json json = {{"predictions", list}};
  if (!all.notes.empty()) json["notes"] = all.notes;
  return json.dump() + "\n";
}

}  // namespace linerate::report
