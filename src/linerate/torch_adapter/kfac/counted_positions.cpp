#include "linerate/torch_adapter/kfac/counted_positions.hpp"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_adapter {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

/// How many dimensions of an operator's input count samples and positions.
std::int64_t leading_dims(const at::Tensor& tensor, LayerKind kind) {
  switch (kind) {
    case LayerKind::embedding:
      return tensor.dim();
    case LayerKind::linear:
      return tensor.dim() - 1;
    case LayerKind::conv:
      return tensor.dim() == 4 ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace

CountedPositions::CountedPositions(const at::Tensor& counted) {
  if (counted.scalar_type() != at::kBool || counted.dim() < 1)
    throw UsageError(fmt::format(
        "K-FAC: count_only(): expected a bool tensor with a label a position, found {} of {}; give "
        "targets != ignore_index",
        shape_of(counted), c10::toString(counted.scalar_type())));
  counted_ = counted.detach().clone();
  labels_ = counted_.sum().item<double>();
}

LayerInput CountedPositions::of(const LayerInput& input, LayerKind kind) const {
  LayerInput left = input;
  if (!given() || input.images != 1) return left;
  const std::int64_t leading = leading_dims(input.tensor, kind);
  const auto sizes = input.tensor.sizes().slice(0, to_index(leading));
  if (leading >= counted_.dim() && sizes.slice(0, to_index(counted_.dim())) == counted_.sizes())
    left.tensor = input.tensor.index({counted_});
  else if (leading == 1 && sizes[0] == counted_.numel())
    left.tensor = input.tensor.index({counted_.flatten()});
  return left;
}

at::Tensor CountedPositions::masked(const at::Tensor& terms) const {
  if (!given()) return terms;
  if (terms.sizes() == counted_.sizes()) return terms * counted_;
  if (terms.dim() == 2 && terms.size(0) == counted_.numel())
    return terms * counted_.flatten().unsqueeze(1);
  const at::Tensor by_class = counted_.unsqueeze(1);
  std::vector<std::int64_t> expected = by_class.sizes().vec();
  if (terms.dim() == by_class.dim()) expected[1] = terms.size(1);
  if (terms.sizes() != expected)
    throw UsageError(fmt::format(
        "K-FAC: count_only() was given labels {}, the loss's output is {}: expected [N, classes, "
        "positions...] for labels [N, positions...], or a row a label",
        shape_of(counted_), shape_of(terms)));
  return terms * by_class;
}

}  // namespace linerate::torch_adapter
