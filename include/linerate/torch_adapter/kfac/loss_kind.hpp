// The losses whose Fisher information K-FAC can sample.
#pragma once

#include <cstdint>

namespace linerate::torch_adapter {

/// Of the network's output z, one term each; what the loss divides their sum by is LossAverage.
enum class LossKind : std::uint8_t {
  softmax_cross_entropy,  // z [N, classes, positions...], one label a sample and position
  binary_cross_entropy,   // with logits, each element of z a term
  squared_error,          // (z - t)²
  half_squared_error,     // (z - t)² / 2
};

}  // namespace linerate::torch_adapter
