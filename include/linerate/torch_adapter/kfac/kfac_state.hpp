// The part of K-FAC that belongs into a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace linerate::torch_adapter {

/// Averages of the factors, their dampings and the step. Independent of the number of ranks.
/// Inverses are not part of it: load() recomputes them.
struct KfacState {
  /// One of a layer's two factors.
  struct Factor {
    std::int64_t updates = 0;  // of the average
    at::Tensor average;        // upper triangles by rows, [groups dim (dim + 1) / 2]; or undefined
    at::Tensor inverted{};     // what the inverse in use was computed from; undefined: `average`
    double damping = 0;        // of the inverse in use
    bool has_inverse = false;  // one is in use
  };
  /// Both factors of one.
  struct Layer {
    std::string name;  // of the layer, as LayerSpec has it
    Factor a, g;       // of inputs, of output gradients
  };
  std::int64_t step = 0;      // steps done
  double rate = 0;            // of the last step, for which the momentum is scaled; 0: none yet
  std::vector<Layer> layers;  // in the order of registration
};

/// Step, factors and what belongs to them as tensors with unique names, for files: f64, i64 and the
/// factors' own types.
[[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> to_tensors(const KfacState& state);
/// Back again, in any order of names but that of the layers. The entries of an older
/// linerate's Levenberg-Marquardt damping are passed over. `place` names the file. Throws
/// InputError.
[[nodiscard]] KfacState kfac_state_of(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors, const std::string& place);

}  // namespace linerate::torch_adapter
