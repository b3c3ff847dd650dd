// Two models on one communicator: a GAN. Each has a DataParallel of its own, with a name; the
// generator learns through the discriminator.
//
//   $ mpirun -n 2 ./040-two-models
//   generated samples have mean 0, real ones 3
//   generated samples have mean 3, after 600 steps
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

using linerate::torch_adapter::DataParallel;

constexpr int kSamples = 64, kSteps = 600;

int main() {
  const auto communicator = linerate::comm::make_world();
  const bool first = communicator->rank() == 0;
  torch::set_num_threads(1);
  torch::manual_seed(1 + communicator->rank());

  using torch::nn::Linear, torch::nn::Tanh;
  torch::nn::Sequential generator(Linear(4, 16), Tanh(), Linear(16, 1));
  torch::nn::Sequential discriminator(Linear(1, 16), Tanh(), Linear(16, 1));
  // The constructors, and later every finish(), come in the same order on all ranks.
  DataParallel parallel_generator(*generator, *communicator, {.name = "generator"});
  DataParallel parallel_discriminator(*discriminator, *communicator, {.name = "discriminator"});
  const auto adam = [](double rate) { return torch::optim::AdamOptions(rate).betas({0.5, 0.9}); };
  torch::optim::Adam forge(generator->parameters(), adam(1e-3));
  torch::optim::Adam tell(discriminator->parameters(), adam(5e-3));

  const auto loss_of = [&](const torch::Tensor& samples, double truth) {
    const torch::Tensor verdict = discriminator->forward(samples);
    return torch::nn::functional::binary_cross_entropy_with_logits(
        verdict, torch::full_like(verdict, truth));
  };
  const auto mean_of_generated = [&] {
    const torch::NoGradGuard no_grad;
    return std::abs(generator->forward(torch::randn({4096, 4})).mean().item<double>());
  };

  if (first) std::printf("generated samples have mean %.0f, real ones 3\n", mean_of_generated());
  for (int step = 0; step < kSteps; ++step) {
    const torch::Tensor real = 3 + 0.5 * torch::randn({kSamples, 1});
    const torch::Tensor fake = generator->forward(torch::randn({kSamples, 4}));

    tell.zero_grad();
    (loss_of(real, 1) + loss_of(fake.detach(), 0)).backward();
    parallel_discriminator.finish();
    tell.step();

    forge.zero_grad();
    const torch::Tensor loss = loss_of(fake, 1);
    {  // This pass leaves gradients in the discriminator that nobody wants: do not send them.
      const auto guard = parallel_discriminator.no_sync();
      loss.backward();
    }
    parallel_generator.finish();
    forge.step();
  }
  parallel_generator.require_same_weights("at the end");
  parallel_discriminator.require_same_weights("at the end");
  if (first)
    std::printf("generated samples have mean %.0f, after %d steps\n", mean_of_generated(), kSteps);
}
