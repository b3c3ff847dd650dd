// The arguments of an operator that uses a layer's weight. Private to kfac and torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "linerate/kfac/kfac_options.hpp"

namespace linerate::torch_adapter {

/// One axis of a convolution.
struct ConvAxis {
  std::int64_t kernel = 1, stride = 1, dilation = 1, pad_before = 0, pad_after = 0;

  /// The inputs from a position's first one to its last.
  std::int64_t span() const { return dilation * (kernel - 1) + 1; }
  std::int64_t outputs(std::int64_t inputs) const {
    return (inputs + pad_before + pad_after - span()) / stride + 1;
  }
};
/// The geometry of a 2-d convolution; [0] is along the height, [1] along the width.
using ConvGeometry = std::array<ConvAxis, 2>;

struct LayerInput {
  /// linear [..., in], conv [N, C, H, W] or [C, H, W], embedding: indices [...], norm: as given. A
  /// 1-d convolution is a 2-d one of height 1. A 3-d convolution is a 2-d one of images. There is
  /// an image for each depth of its output, with C kd channels, the depths of a sample one after
  /// the other.
  at::Tensor tensor = {};
  ConvGeometry conv = {};
  std::int64_t images = 1;          // of a sample
  std::int64_t padding_index = -1;  // embedding
  // norm: layer norm over the last dimensions, else batch norm over all but dimension 1
  bool is_layer_norm = false;
  std::int64_t normalized_dims = 0;
  bool batch_statistics = true;
  at::Tensor running_mean = {}, running_variance = {};
  double epsilon = 0;
  /// Draws the rows at which a subsampled convolution is looked at.
  std::uint64_t draw = 0;
};

// How a loss reads an output: its layout, and which positions of a batch count. Private to
// torch_adapter.

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

// Gradients of a loss's terms with respect to the network's output, in the units of one term; and
// how many terms the loss divides by. Private to kfac and torch_adapter.

/// The source of random labels. A label depends on four numbers alone: the seed, the step, the
/// sample's index among those of all ranks, and the output's index. So labels are the same for
/// every number of ranks. For example with 2 ranks sample 5 is on rank 1 (samples 4 to 7). With 4
/// ranks it is on rank 2 (samples 4 and 5), and its label is the same.
struct LabelDraw {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  // of this rank
};

/// d term / d z with a label drawn from the model's own distribution, shaped like z.
at::Tensor sampled_gradient(const at::Tensor& output, LossKind kind, const LabelDraw& draw);
/// d term / d z with these labels: class indices [N, positions...], or values shaped like z.
at::Tensor labelled_gradient(const at::Tensor& output, LossKind kind, const at::Tensor& labels);

/// The number M of terms by which a loss of this output is divided, over the labels that count.
/// `output`: [N], [N, C] or [N, C, positions...]. 1 for a sum, which is not divided.
double loss_terms(const LossAverage& average, const at::Tensor& output,
                  const CountedPositions& counted = {});

}  // namespace linerate::torch_adapter
