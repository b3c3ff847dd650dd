// Writes logs as nccl-tests prints them (common.cu, util.cu), with the rows that they hold: what
// the reader of collective logs must give back.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "linerate/bench_logs/log_readers.hpp"

namespace linerate::bench_logs {

/// What the columns of the eras are: 2019 leaves redop out where nothing is reduced, 2021 leaves
/// its value out, 2022 writes "none", 2025 says the test before and behind it.
enum class Era { y2019, y2021, y2022, y2025 };

struct PrintedTest {
  const char* name;
  Collective collective;
  bool reduces, rooted, splits;
  double factor(int n) const {
    const double share = (n - 1.0) / n;
    return collective == Collective::all_reduce ? 2 * share : splits ? share : 1;
  }
};
inline constexpr PrintedTest kPrintedTests[] = {
    {"all_reduce", Collective::all_reduce, true, false, false},
    {"reduce_scatter", Collective::reduce_scatter, true, false, true},
    {"all_gather", Collective::all_gather, false, false, true},
    {"alltoall", Collective::all_to_all, false, false, true},
    {"broadcast", Collective::broadcast, false, true, false},
    {"reduce", Collective::reduce, true, true, false}};

struct PrintedRun {
  PrintedTest test = kPrintedTests[0];
  int ranks = 8;
  Era era = Era::y2022;
  int ranks_per_node = 8;
  bool lists_ranks = true;
  bool checks = true;  // "#wrong" holds numbers
  double start_s = 20e-6, bytes_per_s = 100e9;
  std::int64_t smallest = 1 << 12, largest = 1LL << 32;
};

/// getFloatStr of common.cu: two decimals, or as many as fit.
inline std::string printed(double value, int width) {
  char text[64];
  for (const char* form : {"%*.2f", "%*.1f", "%*.0f"})
    if (std::snprintf(text, sizeof text, form, width, value) <= width) return text;
  std::snprintf(text, sizeof text, "%*.1e", width, value);
  return text;
}

struct PrintedLog {
  std::vector<std::string> lines = {};
  std::vector<CollectiveSample> rows = {};  // seconds as printed

  std::string text(const std::string& label = "") const {
    std::string all;
    for (const std::string& line : lines) all += label + line + "\n";
    return all;
  }
  void add(const PrintedLog& other) {
    lines.insert(lines.end(), other.lines.begin(), other.lines.end());
    rows.insert(rows.end(), other.rows.begin(), other.rows.end());
  }
};

inline std::string printed_header(const PrintedRun& run) {
  const bool old = run.era == Era::y2019;
  std::string keys = "#       size         count      type";
  if (!old || run.test.reduces) keys += "   redop";
  if (!old || run.test.rooted) keys += "    root";
  const std::string group = old || run.era == Era::y2021 ? "     time   algbw   busbw  error"
                                                         : "     time   algbw   busbw #wrong";
  return keys + group + group;
}

inline void print_row(const PrintedRun& run, std::int64_t bytes, PrintedLog& log) {
  const bool old = run.era == Era::y2019;
  const std::int64_t count = bytes / 4 / (run.test.splits ? run.ranks : 1);
  std::string line = fmt::format("{:12} {:13} {:>9}", bytes, count, "float");
  if (run.test.reduces)
    line += "     sum";
  else if (!old)
    line += run.era == Era::y2021 ? "        " : "    none";
  if (!old || run.test.rooted) line += run.test.rooted ? "       0" : "      -1";
  for (int g = 0; g < 2; ++g) {
    // In place a little slower, so that the two cannot be confused.
    const double us =
        (run.start_s + static_cast<double>(bytes) / run.bytes_per_s) * 1e6 * (1 + 0.03 * g);
    const double algbw = static_cast<double>(bytes) / us * 1e-3;
    const bool checked = run.checks && !(g == 1 && run.test.collective == Collective::all_to_all);
    const std::string time = printed(us, 7);
    line += "  " + time + "  " + printed(algbw, 6) + "  " +
            printed(algbw * run.test.factor(run.ranks), 6) + (checked ? "      0" : "    N/A");
    log.rows.push_back({.collective = run.test.collective,
                        .ranks = run.ranks,
                        .in_place = g == 1,
                        .bytes = bytes,
                        .seconds = std::stod(time) * 1e-6});
  }
  log.lines.push_back(line);
}

inline PrintedLog printed_log(const PrintedRun& run) {
  PrintedLog log;
  if (run.era == Era::y2025) {
    log.lines.push_back("# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809");
    log.lines.push_back(fmt::format("# Collective test starting: {}_perf", run.test.name));
  }
  log.lines.push_back(
      "# nThread 1 nGpus 1 minBytes 4096 maxBytes 4294967296 step: 2(factor) warmup iters: 5 "
      "iters: 20 agg iters: 1 validation: 1 graph: 0");
  log.lines.push_back("#");
  log.lines.push_back("# Using devices");
  for (int r = 0; run.lists_ranks && r < run.ranks; ++r)
    log.lines.push_back(fmt::format(
        "#  Rank {:2} Group  0 Pid {:6} on node{:03} device {:2} [0x{:02x}] NVIDIA H100", r,
        4000 + r, r / run.ranks_per_node, r % run.ranks_per_node, r % run.ranks_per_node));
  log.lines.push_back("#");
  log.lines.push_back("#                                    out-of-place                in-place");
  log.lines.push_back(printed_header(run));
  log.lines.push_back("#        (B)    (elements)                      (us)  (GB/s)  (GB/s)");
  const std::int64_t piece = 4LL * (run.test.splits ? run.ranks : 1);
  for (std::int64_t bytes = run.smallest; bytes <= run.largest; bytes *= 4)
    print_row(run, std::max(piece, bytes / piece * piece), log);
  log.lines.push_back("# Out of bounds values : 0 OK");
  log.lines.push_back("# Avg bus bandwidth    : 120.3");
  log.lines.push_back("#");
  if (run.era == Era::y2025)
    log.lines.push_back(fmt::format("# Collective test concluded: {}_perf", run.test.name));
  return log;
}

}  // namespace linerate::bench_logs
