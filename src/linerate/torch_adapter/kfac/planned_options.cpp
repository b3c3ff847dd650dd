#include "linerate/torch_adapter/kfac/planned_options.hpp"

namespace linerate::torch_adapter {

KfacOptions planned_options(const plan::Kfac& kfac) {
  KfacOptions options;
  if (kfac.eigen) options.method = InverseMethod::eigen;
  if (kfac.samples_labels) options.fisher = Fisher::monte_carlo;
  options.factor_interval = static_cast<double>(kfac.factor_interval);
  options.inverse_interval = static_cast<double>(kfac.inverse_interval);
  if (kfac.accumulate) options.accumulate = static_cast<double>(*kfac.accumulate);
  options.damping = kfac.damping;
  options.decay = kfac.decay;
  options.kl_clip = kfac.clips ? kfac.kl : 0.0;
  options.conv_subsampling = kfac.subsample;
  options.norms = kfac.norms;
  options.embeddings = kfac.embeddings;
  options.largest_factor = kfac.largest;
  return options;
}

}  // namespace linerate::torch_adapter
