// Private: what the backward passes of a step that add up do with their gradients.
#pragma once

#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// For people: how many passes add up to one exchange, and which of them exchange if it is not the
/// last one alone. Needs Job::accumulation.
std::vector<std::string> accumulation_in_words(const Job& job);

/// For people: that no step of a job of several ranks exchanges gradients, and what it sends
/// instead, as parameters that are averaged (local SGD). Empty: some does, or nothing is known.
std::string no_exchange_in_words(const Job& job);

}  // namespace linerate::trace
