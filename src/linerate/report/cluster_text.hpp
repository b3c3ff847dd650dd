// What a calibration found, as a table for a terminal and as JSON.
#pragma once

#include <string>
#include <vector>

#include "linerate/doc/cluster.hpp"

namespace linerate::report {

/// A line a table of collectives: what was measured, how well the fit predicts what it did not see,
/// and where its law changes; then what probes found.
std::string to_text(const doc::Cluster& cluster);
/// The same, without the measurements: {"collectives": [...], ..., "notes": [...]}.
std::string summary_json(const doc::Cluster& cluster, const std::vector<std::string>& notes);

}  // namespace linerate::report
