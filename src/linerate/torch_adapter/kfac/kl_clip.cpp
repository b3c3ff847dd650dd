#include "linerate/torch_adapter/kfac/kl_clip.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::torch_adapter {

std::optional<double> kl_clip_factor(double q, double learning_rate, double kappa) {
  if (!std::isfinite(q)) return std::nullopt;
  const double divergence = learning_rate * learning_rate * std::abs(q);
  if (kappa <= 0 || divergence == 0) return 1;
  return std::min(1.0, std::sqrt(kappa / divergence));
}

}  // namespace linerate::torch_adapter
