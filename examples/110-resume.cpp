// A rank dies; the job starts again from its checkpoint and ends with the weights of a run that
// nothing interrupted, bit for bit. Besides model and optimizer the checkpoint holds what the
// exchange remembers from step to step: residuals and factors of the compressor, of all ranks.
//
//   $ mpirun -n 2 ./110-resume whole.pt > whole.txt
//   $ mpirun -n 2 ./110-resume part.pt 45   # rank 1 dies in step 45
//   ...
//   [exit 137]
//   $ mpirun -n 2 ./110-resume part.pt | tee part.txt
//   goes on at step 40
//   step 60: weights <*>
//   $ diff whole.txt <(tail -1 part.txt) && echo "the same weights"
//   the same weights
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string_view>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

int main(int argc, char** argv) {
  const std::filesystem::path file = argc > 1 ? argv[1] : "checkpoint.pt";
  const int dies_at = argc > 2 ? std::atoi(argv[2]) : -1;
  const auto communicator = linerate::comm::make_world();
  const int rank = communicator->rank();
  torch::set_num_threads(1);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(32, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  torch::optim::Adam optimizer(net->parameters(), 1e-2);
  linerate::torch_adapter::DataParallel parallel(*net, *communicator,
                                                 {.strategy = "ddp+powersgd(rank=2)"});

  std::int64_t step = 0;
  if (std::filesystem::exists(file)) {  // on every rank
    torch::serialize::InputArchive archive, model, state;
    archive.load_from(file);
    archive.read("model", model), net->load(model);
    archive.read("optimizer", state), optimizer.load(state);
    c10::IValue exchange, steps;
    archive.read("exchange", exchange), archive.read("step", steps);
    parallel.load_compression_state(exchange.to<std::vector<std::string>>(), file);
    step = steps.toInt();
    if (rank == 0) std::printf("goes on at step %lld\n", static_cast<long long>(step));
  }
  const auto save = [&] {
    const c10::IValue exchange(parallel.compression_state());  // collective
    if (rank != 0) return;
    torch::serialize::OutputArchive archive, model, state;
    net->save(model), archive.write("model", model);
    optimizer.save(state), archive.write("optimizer", state);
    archive.write("exchange", exchange), archive.write("step", c10::IValue(step));
    archive.save_to(file.string() + ".part");
    std::filesystem::rename(file.string() + ".part", file);  // whole or not at all
  };

  while (step < 60) {
    if (step == dies_at && rank == 1) std::raise(SIGKILL);
    torch::manual_seed(1000 * step + rank);  // a step's samples depend on nothing that came before
    const torch::Tensor x = torch::randn({32, 32});
    optimizer.zero_grad();
    torch::nn::functional::mse_loss(net->forward(x), x.sin().sum(1, true)).backward();
    parallel.finish();
    optimizer.step();
    if (++step % 20 == 0) save();
  }
  parallel.require_same_weights("at the end");
  std::size_t hash = 0;
  for (const torch::Tensor& p : net->parameters())
    hash = 31 * hash +
           std::hash<std::string_view>{}({static_cast<const char*>(p.data_ptr()), p.nbytes()});
  if (rank == 0) std::printf("step %lld: weights %zx\n", static_cast<long long>(step), hash);
}
