// The same training with gradients as they are, cast to 16 bits, and compressed: what a step sends,
// and where the loss ends.
//
//   $ mpirun -n 2 ./100-compression
//   ddp                       76840 bytes a step   loss 0.3
//   ddp(wire=bf16)            38420 bytes a step   loss 0.3
//   ddp+powersgd(rank=4)      16424 bytes a step   loss 0.3
//   ddp+topk(density=0.01)    12608 bytes a step   loss 0.3
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

using namespace linerate;

void train(comm::Communicator& communicator, const std::string& strategy) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(),
                            torch::nn::Linear(256, 10));
  const torch::Tensor directions = torch::randn({64, 10});
  torch_adapter::DataParallel parallel(*net, communicator, {.strategy = strategy});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  torch::manual_seed(2 + communicator.rank());  // other samples on every rank
  double loss = 0;
  torch_adapter::StepReport report;
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor x = torch::randn({64, 64});
    const torch::Tensor target = x.mm(directions).argmax(1);
    optimizer.zero_grad();
    const torch::Tensor output = torch::nn::functional::cross_entropy(net->forward(x), target);
    output.backward();
    report = parallel.finish();  // .grad is the mean of what the ranks' payloads decode to
    if (!report.infinite)        // a NaN on any rank: all ranks skip the step
      optimizer.step();
    loss = step < 180 ? 0 : loss + output.item<double>() / 20;
  }
  if (communicator.rank() == 0)
    std::printf("%-24s %6lld bytes a step   loss %.1f\n", strategy.c_str(),
                static_cast<long long>(report.bytes), loss);
}

int main() {
  const auto communicator = comm::make_world();
  torch::set_num_threads(1);
  for (const char* strategy :
       {"ddp", "ddp(wire=bf16)", "ddp+powersgd(rank=4)", "ddp+topk(density=0.01)"})
    train(*communicator, strategy);
}
