// A compressor sees a tensor as the matrix of its logical shape, in whatever order its elements lie
// in memory.
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <string>

#include "torch_adapter/parity.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;

/// Parameters that differ in strides alone from one another, or from what is usual.
NamedTensors strided() {
  NamedTensors all = {
      {"rows", torch::zeros({20, 24}, at::kFloat)},
      {"columns", torch::zeros({24, 20}, at::kFloat).t()},
      {"filters", torch::zeros({16, 8, 3, 3}, at::kFloat)},
      {"channels last",
       torch::zeros({16, 8, 3, 3}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast)},
      {"permuted", torch::zeros({5, 7, 12}, at::kFloat).permute({2, 0, 1})}};
  for (auto& [name, tensor] : all) tensor.requires_grad_(true);
  return all;
}

/// The outer product of two vectors, as the first dimension by all others.
at::Tensor of_rank_one(const at::Tensor& like, double seed) {
  const std::int64_t rows = like.size(0);
  return torch::outer(numbers({rows}, seed), numbers({like.numel() / rows}, seed + 0.5))
      .reshape(like.sizes())
      .to(at::kFloat);
}

double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return (found - expected).norm().item<double>() / expected.norm().item<double>();
}

class LogicalShape : public testing::TestWithParam<int> {};

/// One factor is all that a matrix of rank 1 has: it comes back but for rounding.
TEST_P(LogicalShape, AMatrixOfRankOneComesBackByOneFactor) {
  ranks(GetParam(), [](Communicator& communicator) {
    for (const char* exchange : {"bulk", "wfbp", "ddp", "ddp(first=64B,bucket=2KiB)"}) {
      NamedTensors parameters = strided();
      DataParallel parallel(
          parameters, {}, communicator,
          {.strategy = std::string(exchange) + "+powersgd(rank=1, dense_below=0)"});
      for (int step = 0; step < 4; ++step) {
        at::Tensor loss = torch::zeros({}, at::kFloat);
        double seed = 10.0 * step;
        for (auto& [name, tensor] : parameters) {
          tensor.mutable_grad().reset();
          loss = loss + (communicator.rank() + 1) * (tensor * of_rank_one(tensor, ++seed)).sum();
        }
        loss.backward();
        parallel.finish();
        const double mean = (communicator.size() + 1) / 2.0;
        seed = 10.0 * step;
        for (const auto& [name, tensor] : parameters)
          EXPECT_LE(relative_error(tensor.grad(), mean * of_rank_one(tensor, ++seed)), 1e-5)
              << exchange << ", " << name << ", step " << step;
      }
    }
  });
}

/// A gradient of a program's own may repeat one column in memory.
TEST_P(LogicalShape, IsReadFromAnExpandedGradient) {
  ranks(GetParam(), [](Communicator& communicator) {
    NamedTensors parameters = strided();
    DataParallel parallel(parameters, {}, communicator,
                          {.strategy = "ddp+powersgd(rank=1, dense_below=0)"});
    parallel.accumulate([&] {
      at::Tensor loss = torch::zeros({}, at::kFloat);
      for (const auto& [name, tensor] : parameters) loss = loss + tensor.sum();
      loss.backward();
    });
    const auto column = [](const at::Tensor& like) {
      std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.dim()), 1);
      sizes.front() = like.size(0);
      return numbers(sizes, 1, at::kFloat).expand(like.sizes());
    };
    for (auto& [name, tensor] : parameters) tensor.mutable_grad() = column(tensor);
    parallel.finish();
    for (const auto& [name, tensor] : parameters)
      EXPECT_LE(relative_error(tensor.grad(), column(tensor)), 1e-5) << name;
  });
}

/// What an optimizer makes of row-major gradients and other weights: the same step.
TEST_P(LogicalShape, LeavesStepsOfAnOptimizerAlone) {
  ranks(GetParam(), [](Communicator& communicator) {
    const auto trained = [&](const std::string& strategy) {
      NamedTensors parameters = strided();
      DataParallel parallel(parameters, {}, communicator, {.strategy = strategy});
      torch::optim::SGD optimizer(
          [&] {
            std::vector<at::Tensor> list;
            for (const auto& [name, tensor] : parameters) list.push_back(tensor);
            return list;
          }(),
          torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 3; ++step) {
        at::Tensor loss = torch::zeros({}, at::kFloat);
        double seed = 10.0 * step;
        for (const auto& [name, tensor] : parameters)
          loss = loss + (tensor * of_rank_one(tensor, ++seed)).sum();
        loss.backward();
        parallel.step(optimizer);
      }
      std::vector<at::Tensor> flat;
      for (const auto& [name, tensor] : parameters) flat.push_back(tensor.detach().flatten());
      return torch::cat(flat);
    };
    EXPECT_LE(relative_error(trained("ddp+powersgd(rank=1, dense_below=0)"), trained("ddp")), 1e-5);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, LogicalShape, testing::Values(1, 2, 3));

}  // namespace
}  // namespace linerate::torch_adapter
