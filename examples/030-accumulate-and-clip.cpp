// Micro-batches that add up to one exchange a step, and gradients clipped by the norm that they
// have over the samples of all ranks.
//
//   $ mpirun -n 2 ./030-accumulate-and-clip
//   2 ranks, 4 micro-batches of 16 samples each
//   step   0   loss 1.5   gradient norm 0.7   1 exchange of 5056 bytes
//   step 149   loss 0.1   gradient norm <*>   1 exchange of 5056 bytes
//
// The printed loss is rank 0's. Norm and clipped gradients are the same on every rank.
#include <torch/torch.h>

#include <cstdio>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

constexpr int kMicroBatches = 4, kSamples = 16, kSteps = 150;

int main() {
  const auto communicator = linerate::comm::make_world();
  const bool first = communicator->rank() == 0;
  torch::set_num_threads(1);

  torch::manual_seed(1);  // the task: which of four fixed directions is nearest
  const torch::Tensor directions = torch::randn({16, 4});
  torch::nn::Sequential net(torch::nn::Linear(16, 60), torch::nn::ReLU(), torch::nn::Linear(60, 4));
  linerate::torch_adapter::DataParallel parallel(*net, *communicator);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::manual_seed(2 + communicator->rank());  // other samples on every rank

  const auto micro_batch_loss = [&] {
    const torch::Tensor x = torch::randn({kSamples, 16});
    const torch::Tensor target = x.mm(directions).argmax(1);
    return torch::nn::functional::cross_entropy(net->forward(x), target) / kMicroBatches;
  };

  if (first)
    std::printf("%d ranks, %d micro-batches of %d samples each\n", communicator->size(),
                kMicroBatches, kSamples);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    double loss = 0;
    const auto backward = [&] {
      const torch::Tensor part = micro_batch_loss();
      part.backward();
      loss += part.item<double>();
    };
    // All but the last only add to .grad; the last one's backward pass hides the exchange of the
    // sum.
    for (int i = 1; i < kMicroBatches; ++i) parallel.accumulate(backward);
    backward();
    const auto report = parallel.finish();
    const double norm = torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
    optimizer.step();
    if (first && step % (kSteps - 1) == 0)
      std::printf("step %3d   loss %.1f   gradient norm %.1f   %d exchange of %lld bytes\n", step,
                  loss, norm, report.rounds, static_cast<long long>(report.bytes));
  }
}
