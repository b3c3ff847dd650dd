// K-FAC's reports of its layers and steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace linerate::torch_adapter {

/// A module with parameters of its own.
struct RegisteredLayer {
  std::string name;            // its path: "layer1.0.conv1"
  std::string kind;            // "linear", "conv2d", "embedding", "layer_norm", "BatchNorm", ...
  std::int64_t a = 0, g = 0;   // dimensions of its factors; a norm layer: 0 and units
  int groups = 1;              // so many pairs of factors
  std::string reason = {};     // why it is left to the first-order optimizer; empty: it is not
  std::int64_t too_large = 0;  // the dimension that is the reason; 0: another is
};

/// One step().
struct KfacStep {
  std::int64_t step = 0;                   // counted from 0
  bool factors = false, inverses = false;  // updated
  /// The gradients were not finite. Every .grad is cleared, so that the optimizer moves nothing.
  /// Factors and inverses are as they were, and the next batch is this step's. Never on a device:
  /// every .grad is 0 there.
  bool skipped = false;
  double q = 0;        // <direction, gradient>; negative only if inverses are wrong
  double nu = 1;       // of the KL clip; on a device both are NaN if they are not known yet
  double damping = 0;  // of the step
  /// Factors dropped and inverses kept, in words; on a device those of earlier steps that have
  /// become known.
  std::vector<std::string> failures = {};
  /// Registered layers that have a gradient and no inverse: their gradient stays as it is. Empty on
  /// a device while it is not known yet.
  std::vector<std::string> plain = {};
};

/// A stretch of a forward or backward pass in which a hook added to a factor of K-FAC.
struct FactorSpan {
  std::int32_t factor = 0;                // doc::factor_index()
  std::int64_t start_ns = 0, end_ns = 0;  // steady clock
};

/// Bytes.
struct KfacMemory {
  std::int64_t statistics = 0;  // sums over this step's batches
  std::int64_t factors = 0;     // running averages
  std::int64_t inverses = 0;    // and what they were inverted to
};

// The part of K-FAC that belongs into a checkpoint.

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
