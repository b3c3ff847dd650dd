// What the hosts of a recorded job add before its collectives start.
#pragma once

#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::calibrate {

/// doc::Cluster::start_delay_s: the median time from ready to start, in seconds, of collectives
/// that came to an idle network. A collective that is ready at 5 ms counts if its rank's last one
/// ended at 4 ms. If that ended at 6 ms, the collective may have waited for it.
///
/// 0 if no trace says when collectives were ready, if too few came so, or if they scatter. `notes`
/// says which, or the interval of the result.
double start_delay_from_trace(const trace::Job& job, const std::string& source,
                              std::vector<std::string>& notes);

}  // namespace linerate::calibrate
