// How a loss reads an output: its layout, and which positions of a batch count. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/torch_adapter/kfac/kfac_options.hpp"
#include "linerate/torch_adapter/kfac/layer_input.hpp"
#include "linerate/torch_adapter/kfac/layer_spec.hpp"
#include "linerate/torch_adapter/kfac/loss_kind.hpp"

namespace linerate::torch_adapter {

/// Which labels count: bool [N] or [N, positions...], one for each label. A position whose loss is
/// masked has no gradient in layers that treat positions apart, so it is left out of A there as
/// well.
///
/// For example a language model has 2 sentences of 3 positions. The second sentence has padding at
/// its end, so the mask is [[1, 1, 1], [1, 1, 0]]. M is 5. A linear layer's input [2, 3, d] becomes
/// [5, d]. A layer whose input has 2 rows, one a sentence, keeps both.
class CountedPositions {
 public:
  CountedPositions() = default;
  /// `rows`: the mask of all positions of the layers, if the loss reads a part of these; the others
  /// do not count either. Throws UsageError.
  explicit CountedPositions(const at::Tensor& counted, const at::Tensor& rows = {});

  bool given() const { return counted_.defined(); }
  /// labels() is the number of labels that count; all() tells whether every one counts; by_sample()
  /// whether a sample has a single label.
  double labels() const { return labels_; }
  bool all() const { return labels_ == static_cast<double>(rows_.numel()); }
  std::vector<std::int64_t> sizes() const { return counted_.sizes().vec(); }
  bool by_sample() const { return counted_.dim() == 1; }

  /// A layer's input without the positions that do not count. This is for inputs whose leading
  /// dimensions begin with the mask's, or are the mask's positions in the same order; others stay
  /// as they are. Linear layers, embeddings and, by sample, convolutions.
  LayerInput of(const LayerInput& input, LayerKind kind) const;

  /// `terms`, [N, classes, positions...] or [labels, classes], with zeros for labels that do not
  /// count; without a mask as it is. Throws UsageError for another shape.
  at::Tensor masked(const at::Tensor& terms) const;

 private:
  at::Tensor counted_, rows_;
  double labels_ = 0;
};

struct ReadLoss {
  /// [N], [N, classes] or [N, classes, positions...]: a view of the output.
  at::Tensor output;
  /// Not given if all targets count.
  CountedPositions counted;
};

/// `target` may be undefined; `known` is what count_only() has said of the batch. Throws
/// UsageError.
ReadLoss read_loss(const at::Tensor& output, const at::Tensor& target, const LossView& view,
                   const LossAverage& average, const CountedPositions& known);

}  // namespace linerate::torch_adapter
