// linerate's own Timeline as a job to explain, and back.
#pragma once

#include <string>

#include "linerate/doc/timeline.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Reads own runs, predictions and imported Timelines. Steps of all ranks, counters, T_1 and the
/// line rate come along. Throws InputError if the recording in it is damaged.
Job job_of(const doc::Timeline& timeline);
/// The other way, for documents and exporters. `source` says where the job came from.
doc::Timeline timeline_of(const Job& job, const std::string& source);

}  // namespace linerate::trace
