// What compression carries from step to step, as far as a Plan says.
#pragma once

#include <cstdint>

#include "linerate/doc/plan.hpp"

namespace linerate::plan {

/// Bytes that every rank keeps from step to step for what this task encodes. 0 if it encodes
/// nothing, casts, or is a later round of the same tensors. A compressor says its bytes tensor by
/// tensor. A generic codec is taken to keep one copy of the dense values.
std::int64_t kept_bytes(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task);

}  // namespace linerate::plan
