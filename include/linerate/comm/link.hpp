// A network that is slower than the one that is there, for anyone who wants to try it.
#pragma once

#include <optional>

#include "linerate/core/units.hpp"

namespace linerate::comm {

/// From now on every rank that joins a job in this process sends as over a link of this rate, in
/// bytes per second. (A rank joins by make_world, run_ranks or make_world_of_group.) Absent: as
/// fast as it can, as before the first call.
///
/// A rank has one link, whatever communicators and groups it sends through. What counts are the
/// frames of TCP over Ethernet with their headers. Latency stays what it is. Ranks of one host read
/// none of each other's memory, since nothing would pace that. Call it alike on all ranks. Any
/// thread. Throws UsageError unless the rate is at least 1 bit/s.
void set_link(std::optional<BytesPerSecond> rate);

/// The rate of the last set_link().
[[nodiscard]] std::optional<BytesPerSecond> link_rate();

}  // namespace linerate::comm
