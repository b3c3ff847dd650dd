// HYBRID's rows and columns over parts of a gloo group of four processes, by the code for devices.
// Part of the library that tests/comm/c10d/run_suites.py loads on every rank.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "comm/c10d/new_group.hpp"
#include "linerate/comm/c10d/c10d_world.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"

namespace linerate::torch_adapter {
namespace {

std::vector<torch::Tensor> trained_in_rows(comm::Communicator& world,
                                           const std::string& device_group) {
  const Data mine = Data::whole().of(world, /*uneven=*/true);
  Net net;
  KFAC pre(*net, kfac_options());
  DataParallel parallel(*net, world,
                        {.strategy = "ddp+kfac(hybrid, fraction=0.5, factors=2, inverses=4)",
                         .measured_steps = 2,
                         .preconditioner = &pre,
                         .device_group = device_group});
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    parallel.set_batch(mine.inputs.size(0));
    loss_of(net, mine).backward();
    EXPECT_EQ(parallel.finish().host_waits, 0);
    pre.step();
    optimizer.step();
  }
  parallel.require_same_weights("at the end");
  return weights_of(*net);
}

TEST(C10dHybrid, EndsAtTheSameWeights) {
  const std::string name = comm::suite::new_group();
  const auto world = comm::make_world_of_group(name, {.timeout = Duration{60}});
  ASSERT_EQ(world->size(), 4) << "two rows of two columns";
  const auto expected = trained_in_rows(*world, "");
  for (int again = 0; again < 2; ++again)  // whatever a model before has left in the group's store
    EXPECT_LT(largest_difference(trained_in_rows(*world, name), expected), 1e-9);
}

}  // namespace
}  // namespace linerate::torch_adapter
