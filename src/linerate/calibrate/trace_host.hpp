// What the hosts of a recorded job add before its collectives start.
#pragma once

#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::calibrate {

/// doc::Cluster::start_delay_s: the median time from ready to start of the collectives that came to
/// an idle network, none other of their rank being under way. 0 if no trace says when they were
/// ready, too few came so, or they scatter: `notes` says which, or the interval of what was found.
double start_delay_from_trace(const trace::Job& job, const std::string& source,
                              std::vector<std::string>& notes);

}  // namespace linerate::calibrate
