// Private: what a job sends besides its gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/doc/workload.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// The place of a communication, or why no Workload holds it.
enum class SentFor : std::uint8_t {
  gradients,  // or unknown whether it carries any
  forward,    // the forward pass waits for it
  backward,   // the backward pass waits for it
  update,     // of parameters, after the update, which waits for it
  elsewhere   // not of gradients
};

/// By rank and position in its communications. A collective belongs to a pass if the computation
/// waits for most of its kind, as for SyncBatchNorm's gathers and sums. Gathers and broadcasts
/// after an update are of parameters if they have half as many bytes as the gradients, as ZeRO's
/// do. A recording without exchanges of gradients has neither. A Timeline of linerate's own sends
/// what its strategy says, so nothing else is looked for.
std::vector<std::vector<SentFor>> purposes_of(const Job& job);

/// Whether a backward pass waits for some of it.
bool backward_waits(const std::vector<std::vector<SentFor>>& purposes);

/// The other collectives for a Workload of `job`. `alone` is the same job as one rank would run it,
/// and `times` its Workload so far: places are counted in its passes. A collective at no regular
/// interval of steps is left out. `notes` get numbers and exposed times of those kept and of those
/// left out.
std::vector<doc::OtherCollective> other_collectives_of(
    const Job& job, const std::vector<std::vector<SentFor>>& purposes, const Job& alone,
    const doc::Workload& times, std::vector<std::string>& notes);

}  // namespace linerate::trace
