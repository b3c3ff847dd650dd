// A LibTorch program made data-parallel by the three lines marked below.
//
//   $ mpirun -n 2 ./010-data-parallel
//   2 ranks, 64 samples each a step
//   step   0   loss 0.<*>
//   step 199   loss 0.0<*>
//
// The printed loss is rank 0's, of its own half of each batch. (mpirun is tools/mpirun.)
#include <torch/torch.h>

#include <cstdio>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

struct Net : torch::nn::Module {
  torch::nn::Linear hidden{nullptr}, output{nullptr};
  Net() {
    hidden = register_module("hidden", torch::nn::Linear(8, 64));
    output = register_module("output", torch::nn::Linear(64, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return output->forward(torch::relu(hidden->forward(x)));
  }
};

int main() {
  const auto communicator = linerate::comm::make_world();  // 1: construct
  const bool first = communicator->rank() == 0;
  torch::set_num_threads(1);
  torch::manual_seed(
      17 + communicator->rank());  // other samples on every rank; parameters become rank 0's

  Net net;
  linerate::torch_adapter::DataParallel parallel(net, *communicator);  // 2: wrap
  torch::optim::Adam optimizer(net.parameters(), 1e-2);

  if (first) std::printf("%d ranks, 64 samples each a step\n", communicator->size());
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor x = torch::randn({64, 8});
    const torch::Tensor y = x.select(1, 0).sin().unsqueeze(1);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::mse_loss(net.forward(x), y);
    loss.backward();
    parallel.finish();  // 3: finish: gradients are now those of all ranks' samples
    optimizer.step();
    if (first && step % 199 == 0) std::printf("step %3d   loss %.2f\n", step, loss.item<double>());
  }
}
