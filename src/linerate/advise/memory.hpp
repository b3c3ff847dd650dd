// What an exchange keeps in memory on each rank.
#pragma once

#include "linerate/doc/plan.hpp"

namespace linerate::advise {

/// Bytes at the peak of a step beyond parameters, activations and optimizer state.
struct MemoryNeed {
  double buckets = 0;       // all of them: the gradients live in them
  double payloads = 0;      // encoded or cast copies of buckets, and what is sent with them
  double error_memory = 0;  // what codecs and compressors carry into the next step
  // K-FAC, on the rank that keeps most. Statistics of a step and inverses are whole matrices,
  // running averages are triangles. What is sent of them counts too. kfac(d), (mpd) and (spd) keep
  // all on every rank. (mem) and (hybrid) keep the inverses of a rank's or a column's layers, and
  // (dp) keeps all of a layer on its owner alone (Pauloski et al. 2021; Zhang et al. 2022).
  double factors = 0;

  double total() const { return buckets + payloads + error_memory + factors; }
};

/// The largest over the variants of the plan; what K-FAC keeps counts in all of them.
MemoryNeed memory_of(const doc::Plan& plan);

}  // namespace linerate::advise
