// Ranks as threads of one process: for tests, examples and notebooks.
#pragma once

#include <functional>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

/// Runs f on n threads, each with its rank's Communicator, and returns when all have returned. When
/// ranks throw, the first exception (in time) is rethrown; the others are woken from whatever
/// collective they wait in.
void run_ranks(int n, const std::function<void(Communicator&)>& f,
               const CommunicatorOptions& options = {.checked = true});

}  // namespace linerate::comm
