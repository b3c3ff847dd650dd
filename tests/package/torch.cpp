// Ranks train a model: those of an mpirun job if there is linerate::mpi, else threads.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

#include "linerate/exec/recorder.hpp"
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
  linerate::exec::Recorder recorder(ranks, linerate::exec::agree_origin(ranks), "trained");
  linerate::torch_adapter::DataParallel parallel(*model, ranks, {.recorder = &recorder});
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor x = torch::randn({16, 4});
    recorder.begin_step(step);
    optimizer.zero_grad();
    const torch::Tensor loss = (model->forward(x) - x.sum(1, true)).square().mean();
    loss.backward();
    parallel.finish();
    optimizer.step();
    last = loss.item<double>();
  }
  parallel.require_same_weights("at the end");
  const linerate::doc::Timeline all = linerate::exec::gather_timeline(ranks, recorder.timeline());
  if (ranks.rank() == 0)
    std::printf("%d ranks, loss below 0.1: %d, recorded: %d\n", ranks.size(), last < 0.1,
                !all.events.empty());
}

int main() {
#ifdef WITH_MPI
  train(*linerate::comm::make_world());
#else
  linerate::comm::run_ranks(2, train);
#endif
}
