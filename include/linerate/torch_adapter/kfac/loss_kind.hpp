// The kinds of losses that K-FAC is told. Thread safety: values.
#pragma once

#include <cstdint>
#include <optional>

namespace linerate::torch_adapter {

/// The losses whose Fisher information K-FAC can sample. z is the network's output, and each
/// formula is one term. LossAverage has the number by which the loss divides their sum.
enum class LossKind : std::uint8_t {
  softmax_cross_entropy,  // z [N, classes, positions...], one label a sample and position
  binary_cross_entropy,   // with logits, each element of z a term
  squared_error,          // (z - t)²
  half_squared_error,     // (z - t)² / 2
};

/// Where the classes of an output of three or more dimensions lie.
enum class OutputLayout : std::uint8_t {
  classes_second,  // [N, classes, positions...], as PyTorch's cross_entropy() takes it
  classes_last,    // [N, positions..., classes], as language models give it
};

/// How a loss reads the network's output.
struct LossView {
  /// Targets of this class do not count.
  std::int64_t ignore_index = -100;
  /// Absent: it follows from the target's shape.
  std::optional<OutputLayout> layout = {};
};

}  // namespace linerate::torch_adapter
