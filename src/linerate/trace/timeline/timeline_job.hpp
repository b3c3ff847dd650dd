// linerate's own Timeline as a job to explain, and back.
#pragma once

#include <string>

#include "linerate/doc/timeline.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Reads own runs, predictions and imported Timelines. Steps of all ranks, counters, T_1 and the
/// line rate come along. Throws InputError if the recording in it is damaged.
Job job_of(const doc::Timeline& timeline);
/// The other way, for documents and exporters. `source` says where the job came from.
doc::Timeline timeline_of(const Job& job, const std::string& source);

// A recorded job in full, as text that its Timeline carries. Events alone lack what the host did,
// and which operator a kernel came from. A job that is read again from this text is explained as
// its traces are.

/// All but what a Timeline has itself: origin, counters, line rate and notes.
std::string recording_of(const Job& job);
/// Throws InputError naming what is wrong in it.
Job job_of_recording(const std::string& text);

// linerate's own documents among the files given.

/// A Timeline or another document of linerate's.
bool is_document(const Head& head);

}  // namespace linerate::trace
