// What the tests of shared curvature have in common: data, loss, options, strategies.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/host_reads.hpp"
#include "torch_adapter/registered_compressors.hpp"

namespace linerate::torch_adapter {

// ---- networks whose K-FAC steps are compared between one rank and several

/// Ranks are threads of one process and share its generator.
inline void set_weights(torch::nn::Module& net) {
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (torch::Tensor& p : net.parameters())
    p.copy_((torch::arange(p.numel(), torch::kDouble) * 1.7 + ++phase).sin().view(p.sizes()) * 0.4);
}

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3).stride(2)));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(27, 8));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 4));
  NetImpl() {
    to(torch::kDouble);
    set_weights(*this);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(hidden(torch::tanh(conv(x)).flatten(1))));
  }
};
TORCH_MODULE(Net);

/// An embedding and a norm layer: factors that are no matrices.
struct TokenNetImpl : torch::nn::Module {
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(11, 6));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(6, 4));
  TokenNetImpl() {
    to(torch::kDouble);
    set_weights(*this);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(norm(words(x)))).mean(1);
  }
};
TORCH_MODULE(TokenNet);

inline std::vector<torch::Tensor> weights_of(const torch::nn::Module& net) {
  std::vector<torch::Tensor> weights;
  for (const auto& p : net.parameters()) weights.push_back(p.detach().clone());
  return weights;
}

/// Infinite where one of them is not finite, or has other tensors.
inline double largest_difference(const std::vector<torch::Tensor>& a,
                                 const std::vector<torch::Tensor>& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double largest = a.size() == b.size() ? 0 : kInfinite;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const auto difference = (a[i] - b[i]).abs().max().item<double>();
    largest = std::isfinite(difference) ? std::max(largest, difference) : kInfinite;
    if (std::isinf(largest)) return largest;
  }
  return largest;
}

// ---- trainings

inline constexpr std::int64_t kSamples = 24, kSteps = 10;
inline constexpr double kRate = 0.05;
inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct Data {
  torch::Tensor inputs, targets;
  static Data of_tokens() {
    torch::manual_seed(4);
    return {torch::randint(11, {kSamples, 5}), torch::randn({kSamples, 4}, torch::kDouble)};
  }
  /// Ranks are threads of one process and share its generator: nobody else draws now.
  static Data whole(std::uint64_t seed = 3) {
    torch::manual_seed(seed);
    return {torch::randn({kSamples, 1, 8, 8}, torch::kDouble),
            torch::randn({kSamples, 4}, torch::kDouble)};
  }
  /// Equal parts; or, with `uneven`, one sample fewer on rank 0 and one more on the last.
  Data of(int rank, int ranks, bool uneven = false) const {
    const std::int64_t each = kSamples / ranks;
    const std::int64_t shift = uneven ? 1 : 0;
    const std::int64_t begin = rank == 0 ? 0 : rank * each - shift;
    const std::int64_t end = rank == ranks - 1 ? kSamples : (rank + 1) * each - shift;
    return {inputs.slice(0, begin, end), targets.slice(0, begin, end)};
  }
  Data of(const comm::Communicator& c, bool uneven = false) const {
    return of(c.rank(), c.size(), uneven);
  }
  Data in(torch::ScalarType type) const {
    return {inputs.is_floating_point() ? inputs.to(type) : inputs, targets.to(type)};
  }
};

inline torch::Tensor loss_of_output(const torch::Tensor& output, const Data& data) {
  return (output - data.targets).square().sum() / static_cast<double>(data.inputs.size(0));
}
template <typename Model>
torch::Tensor loss_of(Model& net, const Data& data) {
  return loss_of_output(net(data.inputs), data);
}

inline KfacOptions kfac_options(InverseMethod method = InverseMethod::cholesky) {
  return {.loss_average = LossAverage{},
          .method = method,
          .factor_interval = 2,
          .inverse_interval = 4,
          .damping = 0.1,
          .kl_clip = 1e-2,
          .learning_rate = [](std::int64_t) { return kRate; }};
}

inline torch::optim::SGD optimizer_of(torch::nn::Module& net, double momentum = 0.9) {
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(kRate).momentum(momentum));
}

struct CurvatureJob {
  std::string strategy = {};
  KfacOptions options = kfac_options();
  bool uneven = false;            // ranks have unequal parts, and say so
  bool in_one_call = false;       // parallel.step(pre, optimizer), else finish() and both steps
  std::string device_group = {};  // if steps are enqueued, by the code for devices, on the CPU
  int measured_steps = DataParallelOptions{}.measured_steps;
  double replan_above = DataParallelOptions{}.replan_above;
  double momentum = 0.9;  // unless a compressor has its own
};

/// One rank of a training. `c`: null for a K-FAC that nobody shares.
template <typename Model = Net>
struct Program {
  explicit Program(comm::Communicator* c, const CurvatureJob& given = {},
                   torch::Dtype type = torch::kDouble)
      : job(given), optimizer(optimizer_of((net->to(type), *net), momentum_of_job())) {
    if (!job.device_group.empty()) as_device.emplace();
    pre.emplace(*net, job.options);
    if (c) share(*c);
  }
  void share(comm::Communicator& c) {
    parallel.emplace(*net, c,
                     DataParallelOptions{.strategy = job.strategy,
                                         .measured_steps = job.measured_steps,
                                         .replan_above = job.replan_above,
                                         .preconditioner = &*pre,
                                         .device_group = job.device_group});
  }
  /// Goes on as another job from the state, by way of a file.
  void resume(comm::Communicator& c, const CurvatureJob& then) {
    const KfacState state = kfac_state_of(to_tensors(parallel->curvature_state()), "a file");
    parallel.reset();
    job = then;
    pre.emplace(*net, job.options);
    share(c);
    parallel->load_curvature_state(state);
  }

  void backward(const Data& mine, double factor = 1) {
    optimizer.zero_grad();
    if (job.uneven && parallel) parallel->set_batch(mine.inputs.size(0));
    (loss_of(net, mine) * factor).backward();
  }
  KfacStep update() {
    const KfacStep done = pre->step();
    optimizer.step();
    return done;
  }
  KfacStep step(const Data& mine, double factor = 1) {
    backward(mine, factor);
    if (parallel && job.in_one_call) {
      last = parallel->step(*pre, optimizer);
      return {};
    }
    if (parallel) last = parallel->finish();
    return update();
  }
  std::vector<torch::Tensor> weights() {
    if (parallel) parallel->settle();
    if (parallel) parallel->require_same_weights("after " + job.strategy);
    return weights_of(*net);
  }

  CurvatureJob job;
  std::optional<CpuAsDevice> as_device;
  Model net;
  torch::optim::SGD optimizer;
  std::optional<KFAC> pre;
  std::optional<DataParallel> parallel;
  StepReport last;

 private:
  double momentum_of_job() const {
    return job.strategy.empty() ? job.momentum : momentum_beside(job.strategy, job.momentum);
  }
};

/// How many eigendecompositions a rank's step asks for, by the Plan.
inline std::int64_t eigendecompositions(const doc::Plan& plan, const std::string& variant,
                                        int rank) {
  const doc::TaskGraph& graph = plan.variants.at(to_index(plan.variant_index(variant)));
  return std::count_if(graph.tasks.begin(), graph.tasks.end(), [&](const doc::Task& task) {
    return doc::is_eigendecomposition(plan, task) && plan.group_of(task).holds(rank);
  });
}

struct TrainedCurvature {
  std::vector<torch::Tensor> weights;
  std::vector<KfacStep> reports;
  std::int64_t host_waits = 0;
  doc::Plan plan;  // the last one
};

/// Where steps are enqueued, the host waits for the status of each eigendecomposition, and for
/// nothing else.
template <typename Model = Net>
TrainedCurvature trained(comm::Communicator* c, const Data& whole, const CurvatureJob& job = {}) {
  const Data mine = c ? whole.of(*c, job.uneven) : whole;
  Program<Model> program(c, job, whole.targets.scalar_type());
  TrainedCurvature result;
  const HostReads reads;
  for (int step = 0; step < kSteps; ++step) {
    const int before = HostReads::count();
    if (c) result.plan = program.parallel->plan();
    result.reports.push_back(program.step(mine));
    EXPECT_TRUE(result.reports.back().plain.empty()) << job.strategy;
    const int read = HostReads::count() - before;
    result.host_waits += program.last.host_waits;
    if (job.device_group.empty() || !c) continue;
    const std::int64_t solved = eigendecompositions(result.plan, program.last.variant, c->rank());
    EXPECT_EQ(program.last.host_waits, solved) << job.strategy << ", step " << step;
    // Another plan may give layers other owners, by way of the host.
    if (program.parallel->plan().hash() == result.plan.hash()) {
      EXPECT_EQ(read, solved) << job.strategy << ", step " << step;
    }
  }
  result.weights = program.weights();
  if (c) result.plan = program.parallel->plan();
  return result;
}

/// On so many ranks, each of which runs `weights_of_rank(communicator)`: all end within `bound` of
/// `expected`.
template <typename Run>
void expect_weights(const std::string& what, int ranks, const std::vector<torch::Tensor>& expected,
                    Run&& weights_of_rank, double bound = 1e-9) {
  comm::run_ranks(ranks, [&](comm::Communicator& c) {
    EXPECT_LT(largest_difference(weights_of_rank(c), expected), bound)
        << what << ", " << ranks << " ranks";
  });
}

/// Those that end where one rank with all samples does.
inline const std::vector<std::string>& strategies() {
  static const std::vector<std::string> all = {
      "kfac(d, factors=2, inverses=4)",
      "kfac(mpd, factors=2, inverses=4)",
      "kfac(mpd, fusion=none, broadcasts=fused, factors=2, inverses=4)",
      "kfac(mem, factors=2, inverses=4)",
      "kfac(hybrid, fraction=0.5, factors=2, inverses=4)",
      "kfac(spd, factors=2, inverses=4)",
      "kfac(spd, fusion=greedy, placement=lbp2021, theta=10, factors=2, inverses=4)",
      "kfac(spd, fusion=none, placement=round-robin, factors=2, inverses=4)"};
  return all;
}

}  // namespace linerate::torch_adapter
