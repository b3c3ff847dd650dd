// Compares a data-parallel step with one process on the concatenated batch.
#pragma once

#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/state_check.hpp"
#include "torch_adapter/back_end.hpp"

namespace linerate::torch_adapter {

inline constexpr std::int64_t kBatch = 8;  // a rank
inline constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kFloatNaN = std::numeric_limits<float>::quiet_NaN();

/// Of the joined batch, those of a rank.
inline at::Tensor rows(const at::Tensor& whole, int rank) {
  return whole.narrow(0, rank * kBatch, kBatch);
}

/// The same numbers on every rank and in every run, between -1 and 1. Made once: a step of a small
/// network takes hardly longer than its input.
inline at::Tensor numbers(at::IntArrayRef shape, double seed, at::ScalarType type = at::kDouble) {
  thread_local std::map<std::tuple<std::vector<std::int64_t>, double, at::ScalarType>, at::Tensor>
      made;
  at::Tensor& kept = made[{shape.vec(), seed, type}];
  if (!kept.defined())
    kept = torch::sin(torch::arange(c10::multiply_integers(shape), at::kDouble) * 12.9898 +
                      seed * 78.233)
               .reshape(shape)
               .to(type);
  return kept.clone();
}

/// Of the rank that this thread is.
inline thread_local int this_rank = 0;

/// Weights of the seed alone: LibTorch's generator is shared by ranks that are threads, so what it
/// gives depends on which comes first.
inline void seed_weights(torch::nn::Module& module, double seed = 0) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& p : module.parameters())
    p.copy_(numbers(p.sizes(), ++seed) / std::sqrt(static_cast<double>(p.size(-1))));
}
/// That differ between ranks.
inline void set_weights_of_rank(torch::nn::Module& module) {
  seed_weights(module, 100 * this_rank);
}

/// Linear - tanh - linear - tanh - linear with biases: six parameters, f32.
struct Mlp : torch::nn::Module {
  torch::nn::Linear a = register_module("a", torch::nn::Linear(6, 16));
  torch::nn::Linear b = register_module("b", torch::nn::Linear(16, 16));
  torch::nn::Linear c = register_module("c", torch::nn::Linear(16, 3));
  Mlp() { set_weights_of_rank(*this); }
  at::Tensor forward(at::Tensor x) {
    x = torch::tanh(a->forward(x));
    x = torch::tanh(b->forward(x));
    return c->forward(x);
  }
};

inline at::Tensor mean_loss(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::mse_loss(output, target);
}

/// Of a batch of one rank: numbers() of the two seeds are its inputs and its targets.
template <typename Model>
at::Tensor loss_of(Model& model, double input, double target, at::ScalarType type = at::kFloat) {
  return mean_loss(model.forward(numbers({kBatch, 6}, input, type)),
                   numbers({kBatch, 3}, target, type));
}

/// Of a rank's part of the batch that all ranks share.
inline at::Tensor loss_of_rows(const comm::Communicator& c, Mlp& model, double input,
                               double target) {
  const at::ScalarType type = model.a->weight.scalar_type();
  const std::int64_t all = c.size() * kBatch;
  return mean_loss(model.forward(rows(numbers({all, 6}, input, type), c.rank())),
                   rows(numbers({all, 3}, target, type), c.rank()));
}

/// All parameters in one row.
inline at::Tensor flat(const torch::nn::Module& module) {
  return torch::nn::utils::parameters_to_vector(module.parameters()).detach();
}

/// ||ours - expected|| / ||expected||, in f64.
inline double relative_error(const at::Tensor& ours, const at::Tensor& expected) {
  const at::Tensor right = expected.to(at::kDouble);
  return ((ours.to(at::kDouble) - right).norm() / right.norm()).item<double>();
}

/// Copies values, so that a reference model stands where the ranks stand.
inline void copy_parameters(torch::nn::Module& from, torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  const auto source = from.parameters(), target = to.parameters();
  for (std::size_t i = 0; i < source.size(); ++i) target[i].copy_(source[i]);
}

/// All gradients there are in one row, in f64.
inline at::Tensor flat_gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : module.parameters())
    if (p.grad().defined()) all.push_back(p.grad().to(at::kDouble).flatten());
  return torch::cat(all);
}

/// Of all gradients together.
inline double gradient_norm(const torch::nn::Module& module) {
  return flat_gradients(module).norm().item<double>();
}

/// ||ours - expected|| / ||expected|| over all gradients together; undefined must meet undefined.
/// Together, because a tensor whose sum over the batch nearly cancels (a bias) has rounding errors
/// of its summands' size, in any order.
inline double gradient_error(const torch::nn::Module& ours, const torch::nn::Module& expected) {
  const auto right = expected.named_parameters();
  for (const auto& item : ours.named_parameters())
    EXPECT_EQ(item.value().grad().defined(), right[item.key()].grad().defined()) << item.key();
  return relative_error(flat_gradients(ours), flat_gradients(expected));
}

/// Throws on every rank unless parameters, buffers and gradients are the same bits everywhere.
/// Collective.
inline void require_bitwise_equal(comm::Communicator& communicator, torch::nn::Module& model) {
  NamedTensors all;
  for (const auto& item : model.named_parameters()) {
    all.emplace_back(item.key(), item.value());
    if (item.value().grad().defined()) all.emplace_back(item.key() + ".grad", item.value().grad());
  }
  for (const auto& item : model.named_buffers()) all.emplace_back(item.key(), item.value());
  require_same_tensors(communicator, "state after a step", all);
}

/// n ranks of the back end this suite is linked with, one LibTorch thread each.
inline void ranks(int n, const std::function<void(comm::Communicator&)>& f) {
  at::set_num_threads(1);
  run_on(n, [&f](comm::Communicator& communicator) {
    this_rank = communicator.rank();
    f(communicator);
  });
}

/// f64: 1e-12; f32: 1e-6, both relative. The sums of a batch's rows are added in another order.
inline double tolerance(at::ScalarType type) { return type == at::kDouble ? 1e-12 : 1e-6; }

/// Mlp on a rank beside one that sees the joined batch in one process.
struct PairedMlp {
  explicit PairedMlp(comm::Communicator& c, at::ScalarType type = at::kDouble) : communicator(c) {
    model.to(type);
    reference.to(type);
  }

  at::ScalarType type() const { return model.a->weight.scalar_type(); }
  at::Tensor input() const { return numbers({communicator.size() * kBatch, 6}, batch, type()); }
  at::Tensor target() const {
    return numbers({communicator.size() * kBatch, 3}, batch + 0.5, type());
  }
  at::Tensor model_loss() { return loss_of_rows(communicator, model, batch, batch + 0.5); }
  /// Of the reference, with the rows of one rank.
  at::Tensor reference_loss_of(int rank) {
    return mean_loss(reference.forward(rows(input(), rank)), rows(target(), rank));
  }
  at::Tensor reference_loss() { return mean_loss(reference.forward(input()), target()); }
  /// Backward of the next batch; the reference accumulates beside.
  void backward() {
    ++batch;
    reference_loss().backward();
    model_loss().backward();
  }
  void begin_step(bool set_to_none = true) {
    copy_parameters(model, reference);
    reference.zero_grad();
    model.zero_grad(set_to_none);
  }
  void expect_equal(const std::string& what) {
    EXPECT_LE(gradient_error(model, reference), tolerance(type())) << what;
    require_bitwise_equal(communicator, model);
  }
  void begin_step_with_pass() {
    begin_step();
    backward();
  }
  /// A plain step, finished.
  StepReport step(DataParallel& parallel) {
    begin_step_with_pass();
    return parallel.finish();
  }

  comm::Communicator& communicator;
  Mlp model, reference;
  double batch = 0;
};

/// On n ranks, each of which has a pair, whose model is shared by several buckets: some leave
/// before backward ends.
inline void with_pair(int n, const std::function<void(PairedMlp&, DataParallel&)>& work,
                      at::ScalarType type = at::kDouble) {
  ranks(n, [&](comm::Communicator& communicator) {
    PairedMlp pair(communicator, type);
    DataParallel parallel(pair.model, communicator,
                          {.strategy = "ddp(first=64B,bucket=512B)", .name = "net"});
    copy_parameters(pair.model, pair.reference);
    work(pair, parallel);
  });
}

/// By steps, each of which `work` takes: after it both models have the same gradients.
inline void with_pair_step_by_step(
    int n, int steps, const std::function<void(PairedMlp&, DataParallel&, int step)>& work) {
  with_pair(n, [&](PairedMlp& pair, DataParallel& parallel) {
    for (int step = 0; step < steps; ++step) {
      work(pair, parallel, step);
      pair.expect_equal("step " + std::to_string(step));
    }
  });
}

}  // namespace linerate::torch_adapter
