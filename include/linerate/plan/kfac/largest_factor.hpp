// Up to which size K-FAC takes factors.
#pragma once

#include <cstdint>

namespace linerate::plan {

/// A layer with a larger factor is left to the optimizer, unless a strategy says otherwise: 4,096
/// inputs and the bias. Above that, d^3 and d^2 take more of a step than they bring at equal time.
/// Convolutions of 512 x 3 x 3 inputs (docs/kfac.md) and projections to a vocabulary are above it.
inline constexpr std::int64_t kLargestFactor = 4097;

}  // namespace linerate::plan
