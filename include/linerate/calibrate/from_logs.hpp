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
  std::filesystem::path path;
  bench_logs::CollectiveLogOptions reading = {};
};

/// One table for each (in place or not, collective, ranks, ranks a node, dtype): they are never
/// mixed. Logs of the same are repetitions; traces are the ranks of one job,
/// whose late ranks become rank_speeds. What was refused or assumed in a log is a note; without
/// `notes` a warning. Throws InputError naming the file.
doc::Cluster calibrate_from_logs(const std::vector<LogFile>& files, const FitOptions& fitting,
                                 std::vector<std::string>* notes = nullptr);

}  // namespace linerate::calibrate
