// Collectives of a process group on tensors, and training over them by the code for devices. Part
// of the library that tests/comm/c10d/run_suites.py loads on every rank.
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/c10d/new_group.hpp"
#include "comm/ending_suite.hpp"
#include "linerate/comm/c10d/c10d_world.hpp"
#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/core/error.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

/// rank + 1 times {1, 2 ...}; exact in every type and order.
at::Tensor of_rank(int rank, std::int64_t elements, at::ScalarType type) {
  return ((rank + 1) * torch::arange(1, elements + 1)).to(type);
}

TEST(C10dTensors, EveryCollectiveWorksInPlace) {
  const auto group = comm::make_tensor_group(comm::suite::new_group(), c10::kCPU);
  const int size = group->size(), rank = group->rank();
  const std::int64_t block = 5, all = size * block;
  const int ranks_sum = size * (size + 1) / 2;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    const at::Tensor ones = of_rank(0, all, type);
    at::Tensor array = of_rank(rank, all, type);
    group->all_reduce(array, comm::Reduce::sum, "sum");
    EXPECT_TRUE(array.equal(ones * ranks_sum)) << type;
    group->all_reduce(array = of_rank(rank, all, type), comm::Reduce::max, "max");
    EXPECT_TRUE(array.equal(ones * size)) << type;
    group->reduce_scatter(array = of_rank(rank, all, type), comm::Reduce::sum, "reduce-scatter");
    const auto mine = [&](const at::Tensor& whole) { return whole.narrow(0, rank * block, block); };
    EXPECT_TRUE(mine(array).equal(mine(ones) * ranks_sum)) << type;
    array = torch::zeros({all}, type);
    mine(array).copy_(mine(ones));
    group->all_gather(array, "all-gather");
    EXPECT_TRUE(array.equal(ones)) << type;
    const at::Tensor sent = torch::arange(size, type).repeat_interleave(block) + size * rank;
    group->all_to_all(sent, array, "all-to-all");
    const at::Tensor senders = torch::arange(size, type).repeat_interleave(block);
    EXPECT_TRUE(array.equal(senders * size + rank)) << type;
    group->broadcast(array = of_rank(rank, all, type), size - 1, "broadcast");
    EXPECT_TRUE(array.equal(ones * size)) << type;
  }
}

/// Even ranks and odd ones at once, then the first one or two, twice: what a split leaves in the
/// whole group must not matter to the next.
TEST(C10dTensors, APartIsAGroupOfItsOwn) {
  const std::string name_of_whole = comm::suite::new_group();
  const auto options =
      ::c10d::resolve_process_group(name_of_whole)->getBackend(c10::kCPU)->getBackendOptions();
  const auto ranks_of_whole = options->global_ranks_in_group;
  const auto group = comm::make_tensor_group(name_of_whole, c10::kCPU);
  const int size = group->size(), rank = group->rank();
  std::vector<int> alike, first{0};
  for (int r = rank % 2; r < size; r += 2) alike.push_back(r);
  if (size > 1) first.push_back(1);
  const auto sum_of = [](const std::vector<int>& ranks) {
    return std::accumulate(ranks.begin(), ranks.end(), 0.0);
  };
  const auto expect_sum = [&](comm::TensorGroup& part, const std::vector<int>& ranks) {
    EXPECT_EQ(part.size(), static_cast<int>(ranks.size()));
    EXPECT_EQ(ranks.at(static_cast<std::size_t>(part.rank())), rank);
    at::Tensor array = torch::full({3}, rank, at::kDouble);
    part.all_reduce(array, comm::Reduce::sum, "sum of a part");
    EXPECT_TRUE(array.eq(sum_of(ranks)).all().item<bool>());
    part.broadcast(array = torch::full({3}, rank, at::kDouble), part.size() - 1, "from the last");
    EXPECT_TRUE(array.eq(ranks.back()).all().item<bool>());
  };
  const auto halves = group->part(alike, rank % 2 ? "odd" : "even");
  ASSERT_TRUE(halves);
  expect_sum(*halves, alike);
  for (const std::string name : {"the first", "the first again"}) {
    const auto some = group->part(first, name);
    EXPECT_EQ(some != nullptr, rank < 2);
    if (some) expect_sum(*some, first);
  }
  expect_sum(*halves, alike);
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  expect_sum(*group, all);
  EXPECT_EQ(options->global_ranks_in_group, ranks_of_whole);
}

TEST(C10dTensors, AFailureNamesWhatFailed) {
  const auto group = comm::make_tensor_group(comm::suite::new_group(), c10::kCPU);
  const at::Tensor sparse = torch::zeros({3}, at::kComplexFloat).to_sparse();
  EXPECT_THAT(thrown_by<CommError>([&] { group->all_reduce(sparse, comm::Reduce::max, "step 3"); }),
              testing::HasSubstr("step 3 failed: "));
}

at::Tensor trained(comm::Communicator& world, const std::string& strategy,
                   const std::string& device_group) {
  Mlp model;
  DataParallel parallel(model, world,
                        {.strategy = strategy, .measured_steps = 2, .device_group = device_group});
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 8; ++step) {
    if (step % 3 == 1) parallel.set_batch(kBatch + world.rank());
    loss_of(model, step + world.rank(), world.rank()).backward();
    const StepReport report = parallel.step(optimizer);
    const bool tells_sizes = !device_group.empty() && strategy.starts_with("ddp+threshold");
    EXPECT_EQ(report.host_waits > 0, tells_sizes) << strategy << ": " << report.host_waits;
  }
  parallel.settle();
  require_bitwise_equal(world, model);
  return flat(model);
}

/// Nothing paces the collectives of a back end itself, NCCL's or another's.
TEST(C10dTensors, AreRefusedUnderALink) {
  const std::string name = comm::suite::new_group();
  const comm::suite::UnderLink link(comm::suite::kSlowLink);
  const auto world = comm::make_world_of_group(name, {.timeout = Duration{60}});
  this_rank = world->rank();
  EXPECT_THAT(thrown_by([&] { trained(*world, "ddp", name); }),
              testing::HasSubstr("expected no link where a device's back end (NCCL) exchanges "
                                 "gradients, found one of 100 Mbit/s"));
  trained(*world, "ddp", "");
}

/// Over a gloo group's own collectives, and over its messages by ours.
TEST(C10dTensors, TrainingEndsAtTheSameWeights) {
  const std::string name = comm::suite::new_group();
  const auto world = comm::make_world_of_group(name, {.timeout = Duration{60}});
  this_rank = world->rank();
  for (const std::string strategy :
       {"bulk", "ddp", "wfbp", "horovod", "mg-wfbp", "optimal", "dear", "ddp(wire=fp16)",
        "ddp+fp16", "dear+randomk(density=0.1, dense_below=0)",
        "ddp+powersgd(rank=1, dense_below=0)",
        "ddp+topk(density=0.1, exchange=gather, dense_below=0)",
        "ddp+topk(density=0.1, exchange=two-phase, dense_below=0)",
        "ddp+threshold(dense_below=0)"}) {
    const at::Tensor expected = trained(*world, strategy, "");
    const at::Tensor found = trained(*world, strategy, name);
    // A sum of two has one order. Of more, its last bit may say which elements are sent.
    const bool chooses =
        strategy.find("topk") != std::string::npos || strategy.starts_with("ddp+threshold");
    const bool multiplies = strategy.find("powersgd") != std::string::npos;  // in its own order
    if (world->size() <= 2 && !multiplies) {
      EXPECT_TRUE(found.equal(expected)) << strategy;
    } else if (!chooses) {
      EXPECT_LE(relative_error(found, expected),
                strategy.find("fp16") == std::string::npos ? (multiplies ? 1e-4 : 1e-5) : 1e-2)
          << strategy;
    }
  }
}

// HYBRID's rows and columns over parts of a group of four processes.

std::vector<torch::Tensor> trained_in_rows(comm::Communicator& world,
                                           const std::string& device_group) {
  const Data mine = Data::whole().of(world, /*uneven=*/true);
  Program<> program(&world, {.strategy = "ddp+kfac(hybrid, fraction=0.5, factors=2, inverses=4)",
                             .uneven = true,
                             .device_group = device_group,
                             .measured_steps = 2});
  program.as_device.reset();
  for (int step = 0; step < kSteps; ++step) {
    program.step(mine);
    EXPECT_EQ(program.last.host_waits, 0);
  }
  return program.weights();
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
