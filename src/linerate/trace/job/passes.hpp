// Private: what the backward passes of a step that add up do with their gradients.
#pragma once

#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// For people: how many passes add up to one exchange, and which of them exchange if it is not the
/// last one alone. Needs Job::accumulation.
std::vector<std::string> accumulation_in_words(const Job& job);

}  // namespace linerate::trace
