// What an exchange keeps in memory on each rank.
#pragma once

#include "linerate/doc/plan.hpp"

namespace linerate::advise {

/// Bytes at the peak of a step beyond parameters, activations and optimizer state.
struct MemoryNeed {
  double buckets = 0;       // all of them: the gradients live in them
  double payloads = 0;      // encoded or cast copies of buckets, and what is sent beside them
  double error_memory = 0;  // what codecs and compressors carry into the next step
  double factors = 0;       // Kronecker factors and their inverses

  double total() const { return buckets + payloads + error_memory + factors; }
};

/// The largest over the variants of the plan.
MemoryNeed memory_of(const doc::Plan& plan);

}  // namespace linerate::advise
