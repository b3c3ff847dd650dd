// K-FAC for a network of the zoo, as a strategy asks for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {

class Network;

/// `rate`: the optimizer's, of the step that is being taken. `network` and `optimizer` outlive the
/// result.
std::unique_ptr<torch_adapter::KFAC> make_preconditioner(
    const plan::Kfac& kfac, const Network& network, std::function<double()> rate,
    std::uint64_t seed, torch::optim::Optimizer* optimizer = nullptr);

/// Says for people which layers it leaves to the optimizer for their size; empty if there are none.
std::string too_large(const torch_adapter::KFAC& preconditioner, const plan::Kfac& kfac);

/// Between a forward pass and the backward pass of its mean cross entropy. `output`
/// [..., classes], one target each. `first_sample`: this rank's first among those of all ranks.
void show_output(torch_adapter::KFAC& preconditioner, const plan::Kfac& kfac,
                 const at::Tensor& output, std::int64_t first_sample);

// The layers of a zoo network that K-FAC takes, before any training. No LibTorch in this header.

struct RegistrationReport {
  std::string model;
  std::int64_t parameters = 0;  // of the whole network
  std::vector<torch_adapter::RegisteredLayer> layers;
};

/// For the network and the strategy that these options train, without data and without a step.
/// Throws UsageError, also for a strategy without kfac.
RegistrationReport registration_report(const TrainOptions& options);

/// For people: layers whose names differ only in numbers share a line.
std::string text_of(const RegistrationReport& report);

}  // namespace linerate::zoo
