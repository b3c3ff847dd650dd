// A job's program run again, with some of its causes of delay left out. ceilings.cpp and hook.cpp
// say what to leave out, and compare the steps of two replays.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/trace/explain/program.hpp"

namespace linerate::trace {

/// What is left out. Nothing else takes less time than recorded.
struct Change {
  bool instant_network = false;  // data moves in no time
  /// Collectives whose ranks were not all seen to meet take no time: for all that is known, they
  /// wait for late ranks.
  bool instant_unmatched = false;
  bool nothing_waits = false;  // no rank waits for a communication
  /// Gradients are exchanged one bucket after the other, and waited for when the last has been
  /// asked for: what DDP does without a hook.
  bool waits_for_last = false;
  double transfer_factor = 1;                      // of the times in which gradients move
  std::vector<std::vector<std::int64_t>> cuts_ns;  // by lane and point, of its own time before
};

/// When each lane passes its borders, in ns; nullopt if a trace's communications wait for each
/// other in a circle. Without a change: as recorded, on the first rank's clock.
std::optional<std::vector<std::vector<std::int64_t>>> replay(const Program& program,
                                                             const Change& change = {});

}  // namespace linerate::trace
