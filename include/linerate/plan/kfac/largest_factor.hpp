// Up to which size K-FAC takes factors.
#pragma once

#include <cstdint>

namespace linerate::plan {

/// A layer with a larger factor is left to the optimizer: d^3 and d^2 are too much (projections to
/// a vocabulary, first layers of large images).
inline constexpr std::int64_t kLargestFactor = 16384;

}  // namespace linerate::plan
