// Logs of collective benchmarks become a Cluster.
#pragma once

#include <filesystem>
#include <vector>

#include "linerate/calibrate/fit.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/trace/collective_log/collective_log.hpp"

namespace linerate::calibrate {

/// One table for each (in place or not, collective, ranks, dtype): they are never mixed. Logs of
/// the same are repetitions. What was refused or assumed in a log is a warning. Throws InputError
/// naming the file.
doc::Cluster calibrate_from_logs(const std::vector<std::filesystem::path>& files,
                                 const trace::CollectiveLogOptions& reading,
                                 const FitOptions& fitting);

}  // namespace linerate::calibrate
