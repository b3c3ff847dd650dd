#include "linerate/torch_adapter/kfac/loss_terms.hpp"

#include <ATen/core/Tensor.h>

namespace linerate::torch_adapter {

double loss_terms(const LossAverage& average, const at::Tensor& output,
                  const CountedPositions& counted) {
  const auto samples = static_cast<double>(output.dim() > 0 ? output.size(0) : 1);
  const auto features = static_cast<double>(output.dim() > 1 ? output.size(1) : 1);
  switch (average.over) {
    case LossAverage::Over::sum:
      return 1;
    case LossAverage::Over::batch:
      return counted.given() && counted.by_sample() ? counted.labels() : samples;
    case LossAverage::Over::batch_positions:
      return counted.given() ? counted.labels() : static_cast<double>(output.numel()) / features;
    case LossAverage::Over::batch_positions_features:
      return counted.given() ? counted.labels() * features : static_cast<double>(output.numel());
    case LossAverage::Over::terms:
      break;
  }
  return average.terms;
}

}  // namespace linerate::torch_adapter
