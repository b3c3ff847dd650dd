// Whether each rank of a job has the whole model, as data parallelism means it.
#pragma once

#include <string>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// How the model is split over ranks, by its usual name, and what shows it: "FSDP2 (its own
/// annotations)". Empty: nothing in the trace speaks against whole gradients on every rank.
std::string sharding_of(const Job& job);

}  // namespace linerate::trace
