// Private: a Kineto trace becomes a rank of a job.
#pragma once

#include <optional>
#include <vector>

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"
#include "linerate/trace/kineto/records.hpp"

namespace linerate::trace {

/// Adds the rank to the job. Kernels are joined with their collective metadata (launch_join.hpp),
/// and steps are assigned by launch. Notes say what stays unknown. Times become absolute;
/// Job::origin_ns is not touched.
void add_rank(const KinetoTrace& trace, Job& job);

// Private: what a Kineto trace lacks, said to the user: unknown is never written as zero.

/// Notes for `job` on what the trace of `rank` does not say. Sets Job::communication_unknown if a
/// job of several ranks shows no communication.
void note_absences(const KinetoTrace& trace, const RankActivity& rank, Job& job);

// Private: what a rank did when: data loading, copies from the host, forward, backward, optimizer.

/// The host's: operators and the annotations of loader and optimizer, from the first to the last of
/// them, with the pauses between (job/phase.hpp).
std::vector<PhaseSpan> host_phases(const KinetoTrace& trace);

/// The host's pauses of a millisecond and more within its steps, by phase. Shorter ones are Python
/// between operators. Time in a call of the device's runtime is no pause, as it waits for the
/// device. Absent if the trace has no operators or no calls of the runtime.
std::optional<std::vector<PhaseSpan>> host_pauses(const KinetoTrace& trace,
                                                  const std::vector<PhaseSpan>& host);

/// The device's work has the phase of its launch; the time between is the host's.
std::vector<PhaseSpan> device_phases(const KinetoTrace& trace, const LaunchTimes& launches,
                                     const std::vector<PhaseSpan>& host);

}  // namespace linerate::trace
