// Logs of collective benchmarks, tables of one's own timings and traces of a job become a Cluster.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "linerate/bench_logs/collective_sample.hpp"
#include "linerate/calibrate/fit_options.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// A log, and what the caller knows about it.
struct LogFile {
  std::filesystem::path path;                     // of the log
  bench_logs::CollectiveLogOptions reading = {};  // what the log may leave open
};

/// Reads logs, tables and traces, and fits them. There is one table for each (in place or not,
/// collective, ranks, ranks a node, dtype), and rows of different tables are never mixed. Logs of
/// the same table are repetitions. Traces are the ranks of one job, whose late ranks become
/// rank_speeds. A note says what was refused or assumed in a log; if `notes` is null, it is a
/// warning. Throws InputError naming the file.
[[nodiscard]] doc::Cluster calibrate_from_logs(const std::vector<LogFile>& files,
                                               const FitOptions& fitting,
                                               std::vector<std::string>* notes = nullptr);

}  // namespace linerate::calibrate
