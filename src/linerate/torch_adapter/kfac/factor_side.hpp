// Names of the parts of a layer's curvature.
#pragma once

#include <cstdint>

namespace linerate::torch_adapter {

/// A: of a layer's inputs. G: of the gradients of its outputs.
enum class FactorSide : std::uint8_t { a, g };

enum class BlockKind : std::uint8_t {
  kronecker,  // F ~ G x A, `groups` pairs
  embedding,  // F ~ G x diag(A)
  unit_wise,  // norm layers: 2 x 2 (scale, shift) a unit, no A
};

}  // namespace linerate::torch_adapter
