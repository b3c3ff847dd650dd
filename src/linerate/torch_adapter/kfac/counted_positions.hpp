// Which positions of a batch count in its loss. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include "linerate/torch_adapter/kfac/layer_input.hpp"
#include "linerate/torch_adapter/kfac/layer_spec.hpp"

namespace linerate::torch_adapter {

/// bool [N] or [N, positions...]: one for each label. A position whose loss is masked has no
/// gradient in layers that treat positions apart, and is left out of A there as well.
class CountedPositions {
 public:
  CountedPositions() = default;
  /// Throws UsageError.
  explicit CountedPositions(const at::Tensor& counted);

  bool given() const { return counted_.defined(); }
  /// Labels that count; whether each sample has one.
  double labels() const { return labels_; }
  bool by_sample() const { return counted_.dim() == 1; }

  /// What a layer's operator read, without the positions that do not count: of inputs whose leading
  /// dimensions are those of the mask, or its positions one after the other; others stay. Linear
  /// layers, embeddings and, by sample, convolutions.
  LayerInput of(const LayerInput& input, LayerKind kind) const;

  /// `terms`, [N, classes, positions...] or [labels, classes], with zeros for labels that do not
  /// count; without a mask as it is. Throws UsageError for another shape.
  at::Tensor masked(const at::Tensor& terms) const;

 private:
  at::Tensor counted_;
  double labels_ = 0;
};

}  // namespace linerate::torch_adapter
