// A short measurement of all-reduces between the ranks that will train: enough to choose bucket
// sizes by. For predictions use `linerate calibrate`.
#pragma once

#include <cstdint>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// Medians of three all-reduces at sizes from 4 KiB up to `largest_bytes` (at most 16 MiB), the
/// slowest rank's, joined by straight lines. Stops early once a size takes longer than 0.2 s: the
/// last line then goes on. The same Cluster on every rank. Collective; the machine should be as
/// busy as it is going to be.
doc::Cluster probe_all_reduce(comm::Communicator& communicator, std::int64_t largest_bytes);

}  // namespace linerate::calibrate
