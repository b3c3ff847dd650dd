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

/// By rank, by position in its communications. Within a pass the computation has to wait for most
/// of what is alike: SyncBatchNorm's gathers and sums. After an update gathers and broadcasts of at
/// least half as many bytes as the gradients have are of parameters: ZeRO's. A recording without
/// gradients or exchanges of them has neither. A Timeline of linerate's own sends what its strategy
/// says, and nothing else is looked for.
std::vector<std::vector<SentFor>> purposes_of(const Job& job);

/// Whether a backward pass waits for some of it.
bool backward_waits(const std::vector<std::vector<SentFor>>& purposes);

/// For a Workload of `job`: what stands in it at the times of `alone`, the same job as one rank
/// would run it, whose Workload has these times of passes. A collective at no regular interval of
/// steps is left out. `notes` get numbers and exposed times of those held and of those left out.
std::vector<doc::OtherCollective> other_collectives_of(
    const Job& job, const std::vector<std::vector<SentFor>>& purposes, const Job& alone,
    const doc::Workload& times, std::vector<std::string>& notes);

}  // namespace linerate::trace
