// K-FAC for a network of the zoo, as a strategy asks for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/kfac/kfac.hpp"
#include "linerate/zoo/network.hpp"

namespace linerate::zoo {

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

}  // namespace linerate::zoo
