// Private: how much a job would send of its gradients without a hook.
#pragma once

#include <cstdint>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Gradients that are sent in fewer bytes than this share of theirs went through a hook: padding
/// and flags are none.
inline constexpr double kHookSendsLess = 0.9;

/// Of one backward pass, as the gradients of the job are; 0: unknown.
inline std::int64_t dense_bytes(const Job& job) {
  std::int64_t bytes = 0;
  for (const GradientRecord& g : job.gradients)
    bytes += g.elements * static_cast<std::int64_t>(size_of(g.dtype));
  return bytes;
}

}  // namespace linerate::trace
