// OSU micro-benchmarks text, v5 to v7: "# OSU MPI Allreduce Latency Test v5.9", "# Size  Avg
// Latency(us)", rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/collective_log/log_readers.hpp"
#include "linerate/trace/collective_log/log_words.hpp"

namespace linerate::trace {
namespace {

/// Column titles contain single blanks: split on runs of two or more.
std::vector<std::string> titles_of(std::string_view line) {
  std::vector<std::string> titles;
  line = trim(line);
  while (!line.empty()) {
    std::size_t end = line.find("  ");
    const std::size_t tab = line.find('\t');
    end = std::min({end, tab, line.size()});
    titles.emplace_back(trim(line.substr(0, end)));
    line = trim(line.substr(end));
  }
  return titles;
}

struct Columns {
  int size = -1, average = -1, low = -1, high = -1;
};

Columns columns_of(std::string_view header) {
  Columns c;
  const std::vector<std::string> titles = titles_of(header);
  for (int i = 0; i < static_cast<int>(titles.size()); ++i) {
    const std::string& t = titles[static_cast<std::size_t>(i)];
    if (t == "Size")
      c.size = i;
    else if (t.starts_with("Avg Latency") || t.starts_with("Latency"))
      c.average = i;
    else if (t.starts_with("Min Latency"))
      c.low = i;
    else if (t.starts_with("Max Latency"))
      c.high = i;
  }
  return c;
}

std::optional<Collective> collective_of_title(std::string_view title) {
  if (const auto c = collective_named_in(title)) return c;
  if (title.find("Reduce Latency") != std::string_view::npos) return Collective::reduce;
  if (title.find("Barrier") != std::string_view::npos) return Collective::barrier;
  return std::nullopt;
}

/// All-gather sizes are one rank's contribution, all-to-all sizes are per destination: the total
/// array is n times that.
std::int64_t total_bytes(Collective c, double size, int ranks, const std::string& name) {
  if (c != Collective::all_gather && c != Collective::all_to_all)
    return static_cast<std::int64_t>(size);
  if (ranks < 1)
    throw InputError(
        name,
        fmt::format("OSU states the size of {} per rank, and not how many ranks ran; give --ranks",
                    name_of(c)));
  return static_cast<std::int64_t>(size * ranks);
}

}  // namespace

bool is_osu(std::string_view head) { return head.find("# OSU ") != std::string_view::npos; }

CollectiveLog read_osu(Input& input, const CollectiveLogOptions& options) {
  CollectiveLog log{.source = input.name(), .format = "OSU"};
  const int ranks = settle_ranks(input.name(), std::nullopt, options.ranks);
  std::optional<Collective> collective = options.collective;
  DType dtype = DType::u8;  // MPI_CHAR unless the log says otherwise
  Columns columns;
  std::string_view line;
  std::string title;  // of a test that is no collective of a training step
  std::vector<std::string> unused;
  std::size_t refused = 0;
  while (input.next_line(line)) {
    line = trim(without_mpi_tag(line));
    if (line.starts_with("#")) {
      const std::string_view text = trim(line.substr(1));
      if (text.starts_with("OSU "))
        collective = options.collective ? options.collective : collective_of_title(text),
        columns = {}, title = collective ? "" : std::string(text);
      else if (text.starts_with("Datatype:"))
        dtype = dtype_of_log(trim(text.substr(9, text.find('.', 9) - 9))).value_or(dtype);
      else if (text.find("Latency") != std::string_view::npos)
        columns = columns_of(text);
      continue;
    }
    if (line.empty()) continue;
    if (!title.empty()) {  // point-to-point, gather, scatter: other tests may follow
      if (unused.empty() || unused.back() != title) unused.push_back(title);
      continue;
    }
    const std::vector<std::string_view> words = words_of(line);
    const auto at = [&words](int i) {
      return i >= 0 && i < static_cast<int>(words.size())
                 ? number_of(words[static_cast<std::size_t>(i)])
                 : std::nullopt;
    };
    const std::optional<double> us = at(columns.average);
    const std::optional<double> size =
        columns.size < 0 && collective == Collective::barrier ? 0.0 : at(columns.size);
    if (!collective || !us || !size || *us <= 0 || *size < 0 || *size > 1e15) {
      refused += number_of(words[0]).has_value();
      continue;
    }
    log.rows.push_back({.collective = *collective,
                        .ranks = ranks,
                        .dtype = dtype,
                        .bytes = total_bytes(*collective, *size, ranks, input.name()),
                        .seconds = *us * 1e-6,
                        .low_s = at(columns.low).value_or(0) * 1e-6,
                        .high_s = at(columns.high).value_or(0) * 1e-6});
  }
  for (const std::string& t : unused) {
    const std::string what = fmt::format(
        "\"{}\" is not a collective that a training step uses; expected Allreduce, Reduce_scatter, "
        "Allgather, Alltoall, Bcast, Reduce or Barrier",
        t);
    if (log.rows.empty()) throw InputError(input.name(), what);
    log.notes.push_back(fmt::format("{}: {}; left out", input.name(), what));
  }
  if (refused > 0)
    log.notes.push_back(fmt::format("{}: {} rows could not be read", input.name(), refused));
  if (ranks == 0)
    log.notes.push_back(
        fmt::format("{}: OSU logs do not say how many ranks ran; give --ranks", input.name()));
  return log;
}

}  // namespace linerate::trace
