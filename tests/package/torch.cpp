// Ranks train a model: those of an mpirun job if there is linerate::mpi, else threads.
#include <torch/torch.h>

#include <cstdio>

#include "linerate/torch_adapter/data_parallel.hpp"
#ifdef WITH_MPI
#include "linerate/comm/mpi/mpi_world.hpp"
#else
#include "linerate/comm/thread/run_ranks.hpp"
#endif

using linerate::comm::Communicator;

void train(Communicator& ranks) {
  torch::manual_seed(17 + ranks.rank());
  torch::nn::Linear model(4, 1);
  linerate::torch_adapter::DataParallel parallel(*model, ranks);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor x = torch::randn({16, 4});
    optimizer.zero_grad();
    const torch::Tensor loss = (model->forward(x) - x.sum(1, true)).square().mean();
    loss.backward();
    parallel.finish();
    optimizer.step();
    last = loss.item<double>();
  }
  parallel.require_same_weights("at the end");
  if (ranks.rank() == 0) std::printf("%d ranks, loss below 0.1: %d\n", ranks.size(), last < 0.1);
}

int main() {
#ifdef WITH_MPI
  train(*linerate::comm::make_world());
#else
  linerate::comm::run_ranks(2, train);
#endif
}
