#include "linerate/zoo/preconditioner.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/plan/kfac/curvature.hpp"
#include "linerate/torch_adapter/kfac/layer_spec.hpp"
#include "linerate/torch_adapter/kfac/planned_options.hpp"

namespace linerate::zoo {

using torch_adapter::KFAC;
using torch_adapter::LossAverage;

std::unique_ptr<KFAC> make_preconditioner(const plan::Kfac& kfac, const Network& network,
                                          std::function<double()> rate, std::uint64_t seed,
                                          torch::optim::Optimizer* optimizer) {
  if (kfac.accumulate.value_or(1) != 1)
    throw UsageError(
        fmt::format("kfac(accumulate={}): a step here is one backward pass; leave it out, or train "
                    "with torch_adapter::KFAC or linerate.torch",
                    *kfac.accumulate));
  torch_adapter::KfacOptions options = torch_adapter::planned_options(kfac);
  options.loss_average =
      LossAverage{.over = network.description().tokens() ? LossAverage::Over::batch_positions
                                                         : LossAverage::Over::batch};
  options.optimizer = optimizer;
  options.learning_rate = [rate = std::move(rate)](std::int64_t) { return rate(); };
  options.seed = seed;
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : network.parameters()) parameters.push_back(tensor);
  return std::make_unique<KFAC>(network.layers(), parameters, options);
}

std::string too_large(const KFAC& preconditioner, const plan::Kfac& kfac) {
  std::vector<plan::TooLarge> layers;
  for (const torch_adapter::RegisteredLayer& layer : preconditioner.registration_report())
    if (layer.too_large > 0) layers.push_back({layer.name, layer.too_large});
  return plan::too_large(layers, kfac.largest);
}

// K-FAC sees the network's output, and with fisher=mc draws labels from it. Rows are numbered over
// all ranks, so that the draws do not depend on how samples are shared.
void show_output(KFAC& preconditioner, const plan::Kfac& kfac, const at::Tensor& output,
                 std::int64_t first_sample) {
  // K-FAC takes dimension 1 for the classes: every position becomes a row of its own.
  const at::Tensor terms = output.flatten(0, -2);
  preconditioner.loss_of(terms);
  if (!kfac.samples_labels) return;
  const std::int64_t positions = output.size(0) > 0 ? terms.size(0) / output.size(0) : 1;
  preconditioner.sample_fisher(terms, torch_adapter::LossKind::softmax_cross_entropy,
                               first_sample * positions);
}

}  // namespace linerate::zoo
