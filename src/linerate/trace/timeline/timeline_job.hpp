// linerate's own Timeline as a job to explain, and back.
#pragma once

#include <string>

#include "linerate/doc/timeline.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Own runs, predicted and imported timelines. Steps of all ranks, counters, T_1 and the line rate
/// come along.
Job job_of(const doc::Timeline& timeline);
/// The other way, for documents and exporters.
doc::Timeline timeline_of(const Job& job, const std::string& source);

}  // namespace linerate::trace
