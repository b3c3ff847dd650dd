// K-FAC under DataParallel, next to SGD: the strategy "ddp+kfac(spd)" shares factors and inverses
// among the ranks, and the preconditioner writes natural gradients for the optimizer.
//
//   $ mpirun -n 2 ./090-kfac
//   ddp                                      step   0   loss 0.13<*>
//   ddp                                      step  40   loss 0.01<*>
//   ddp                                      step  80   loss 0.00<*>
//   ddp                                      step 120   loss 0.00<*>
//   ddp+kfac(spd, factors=1, inverses=10)    step   0   loss 0.13<*>
//   ddp+kfac(spd, factors=1, inverses=10)    step  40   loss 0.00<*>
//   ddp+kfac(spd, factors=1, inverses=10)    step  80   loss 0.00<*>
//   ddp+kfac(spd, factors=1, inverses=10)    step 120   loss 0.00<*>
#include <torch/torch.h>

#include <cstdio>
#include <memory>
#include <string>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

using namespace linerate;

/// The loss after each fortieth step of a small autoencoder, whose inputs differ much in scale.
void train(comm::Communicator& communicator, const std::string& strategy, double rate) {
  torch::manual_seed(1);
  const torch::Tensor scales = torch::logspace(0, -2, 20);
  torch::nn::Sequential net(torch::nn::Linear(20, 24), torch::nn::Tanh(), torch::nn::Linear(24, 6),
                            torch::nn::Tanh(), torch::nn::Linear(6, 24), torch::nn::Tanh(),
                            torch::nn::Linear(24, 20));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(rate).momentum(0.9));

  std::unique_ptr<torch_adapter::KFAC> kfac;
  if (strategy.find("kfac") != std::string::npos)
    kfac = std::make_unique<torch_adapter::KFAC>(
        *net, torch_adapter::KfacOptions{
                  // Mean squared error is the mean over samples and features.
                  .loss_average = {{torch_adapter::LossAverage::Over::batch_positions_features}},
                  .optimizer = &optimizer});
  torch_adapter::DataParallel parallel(*net, communicator,
                                       {.strategy = strategy, .preconditioner = kfac.get()});

  const torch::Tensor mixing = torch::randn({6, 20});
  torch::manual_seed(2 + communicator.rank());  // other samples on every rank
  for (int step = 0; step <= 120; ++step) {
    const torch::Tensor x = torch::tanh(torch::randn({128, 6}).mm(mixing)) * scales;
    optimizer.zero_grad();
    const torch::Tensor output = net->forward(x);
    const torch::Tensor loss = torch::nn::functional::mse_loss(output, x);
    if (kfac) kfac->loss_of(output);  // the loss's terms, before its backward pass
    loss.backward();
    parallel.finish();
    if (kfac) kfac->step();  // .grad is the natural gradient now
    optimizer.step();
    if (communicator.rank() == 0 && step % 40 == 0)
      std::printf("%-40s step %3d   loss %.4f\n", strategy.c_str(), step, loss.item<double>());
  }
}

int main() {
  const auto communicator = comm::make_world();
  torch::set_num_threads(1);
  train(*communicator, "ddp", 0.5);
  train(*communicator, "ddp+kfac(spd, factors=1, inverses=10)", 0.1);
}
