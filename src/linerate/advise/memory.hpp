// What an exchange keeps in memory on each rank.
#pragma once

#include "linerate/doc/plan.hpp"

namespace linerate::advise {

/// Bytes at the peak of a step beyond parameters, activations and optimizer state.
struct MemoryNeed {
  double buckets = 0;       // all of them: the gradients live in them
  double payloads = 0;      // encoded or cast copies of buckets, and what is sent with them
  double error_memory = 0;  // what codecs and compressors carry into the next step
  // K-FAC, on the rank that keeps most: statistics of a step as whole matrices, running averages as
  // triangles, inverses as whole matrices, and what is sent of them. kfac(d), (mpd), (spd) keep all
  // on every rank, (mem) and (hybrid) the inverses of a rank's or a column's layers, (dp) all of it
  // for its owner alone (Pauloski et al. 2021; Zhang et al. 2022).
  double factors = 0;

  double total() const { return buckets + payloads + error_memory + factors; }
};

/// The largest over the variants of the plan; what K-FAC keeps counts in all of them.
MemoryNeed memory_of(const doc::Plan& plan);

}  // namespace linerate::advise
