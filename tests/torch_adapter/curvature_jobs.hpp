// What the tests of shared curvature have in common: data, loss, options, strategies.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
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

/// In f64. Ranks are threads of one process and share its generator.
inline void set_weights(torch::nn::Module& net) {
  const torch::NoGradGuard no_grad;
  net.to(torch::kDouble);
  double phase = 0;
  for (torch::Tensor& p : net.parameters())
    p.copy_((torch::arange(p.numel(), torch::kDouble) * 1.7 + ++phase).sin().view(p.sizes()) * 0.4);
}

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3).stride(2)));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(27, 8));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 4));
  NetImpl() { set_weights(*this); }
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
  TokenNetImpl() { set_weights(*this); }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(norm(words(x)))).mean(1);
  }
};
TORCH_MODULE(TokenNet);

/// What a rank computes in a step of a BranchNet.
struct BranchBatch {
  torch::Tensor images, words, targets;  // [samples, 1, 5, 5], [samples, positions], [samples, 4]
  std::array<int, 2> uses{};             // of each branch
};

/// By torch::manual_seed().
inline int drawn_below(int n) { return torch::randint(n, {1}).item<int>(); }
inline BranchBatch random_batch(std::int64_t samples) {
  return {torch::randn({samples, 1, 5, 5}, torch::kDouble),
          torch::randint(11, {samples, 1 + drawn_below(6)}),
          torch::randn({samples, 4}, torch::kDouble),
          {drawn_below(3), drawn_below(3)}};
}

/// Every kind of layer: words, a norm layer and a trunk for every position; branches that a pass
/// may leave out or repeat; a head for the mean over positions, beside that of a convolution.
struct BranchNetImpl : torch::nn::Module {
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3)));
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(11, 6));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  torch::nn::Linear trunk = register_module("trunk", torch::nn::Linear(6, 7));
  std::array<torch::nn::Linear, 2> branches = {register_module("branch0", torch::nn::Linear(7, 7)),
                                               register_module("branch1", torch::nn::Linear(7, 7))};
  torch::nn::Linear head = register_module("head", torch::nn::Linear(10, 4));
  BranchNetImpl() { set_weights(*this); }
  torch::Tensor forward(const BranchBatch& x) {
    torch::Tensor h = torch::tanh(trunk(norm(words(x.words))));
    for (std::size_t b = 0; b < branches.size(); ++b)
      for (int use = 0; use < x.uses[b]; ++use) h = torch::tanh(branches[b](h));
    const torch::Tensor seen = torch::tanh(conv(x.images)).flatten(2).mean(2);
    return head(torch::cat({h.mean(1), seen}, 1));
  }
  void freeze(const std::array<bool, 2>& frozen) {
    for (std::size_t b = 0; b < branches.size(); ++b)
      for (torch::Tensor& p : branches[b]->parameters()) p.set_requires_grad(!frozen[b]);
  }
};
TORCH_MODULE(BranchNet);

/// Linear layers of these sizes, with tanh between them.
inline torch::nn::Sequential layers(const std::vector<std::int64_t>& sizes) {
  torch::nn::Sequential net;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    if (i > 1) net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Linear(sizes[i - 1], sizes[i]));
  }
  set_weights(*net);
  return net;
}

inline std::vector<torch::Tensor> weights_of(const torch::nn::Module& net) {
  std::vector<torch::Tensor> weights;
  for (const auto& p : net.parameters()) weights.push_back(p.detach().clone());
  return weights;
}

/// Infinite where one of them is not finite.
inline double largest_difference(const std::vector<torch::Tensor>& a,
                                 const std::vector<torch::Tensor>& b) {
  const auto row = torch::nn::utils::parameters_to_vector;
  const torch::Tensor off = (row(a) - row(b)).abs();
  return off.masked_fill(off.isnan(), HUGE_VAL).max().item<double>();
}

/// The same names in the same order, whose tensors are off by no more than `bound`.
inline void expect_same_tensors(const NamedTensors& found, const NamedTensors& expected,
                                const std::string& what, double bound = 0) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [name, tensor] = found[i];
    EXPECT_EQ(name, expected[i].first) << what;
    EXPECT_EQ(tensor.sizes(), expected[i].second.sizes()) << what << ": " << name;
    EXPECT_TRUE(torch::allclose(tensor, expected[i].second, 0, bound)) << what << ": " << name;
  }
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
    const std::int64_t samples = targets.size(0), each = samples / ranks;
    const std::int64_t shift = uneven ? 1 : 0;
    const std::int64_t begin = rank == 0 ? 0 : rank * each - shift;
    const std::int64_t end = rank == ranks - 1 ? samples : (rank + 1) * each - shift;
    return {inputs.slice(0, begin, end), targets.slice(0, begin, end)};
  }
  Data of(const comm::Communicator& c, bool uneven = false) const {
    return of(c.rank(), c.size(), uneven);
  }
  Data in(torch::ScalarType type) const {
    return {inputs.is_floating_point() ? inputs.to(type) : inputs, targets.to(type)};
  }
};

inline torch::Tensor loss_of_output(const torch::Tensor& output, const torch::Tensor& targets) {
  return (output - targets).square().sum() / static_cast<double>(targets.size(0));
}
template <typename Model>
torch::Tensor loss_of(Model& net, const Data& data) {
  return loss_of_output(net->forward(data.inputs), data.targets);
}
inline torch::Tensor loss_of(BranchNet& net, const BranchBatch& batch) {
  return loss_of_output(net->forward(batch), batch.targets);
}

/// Those that have to be said.
inline KfacOptions bare_options() {
  return {.loss_average = LossAverage{}, .learning_rate = [](std::int64_t) { return kRate; }};
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

inline KfacOptions without_clip(InverseMethod method = InverseMethod::cholesky) {
  KfacOptions options = kfac_options(method);
  options.damping = [](std::int64_t step) { return 0.1 / (1.0 + static_cast<double>(step)); };
  options.kl_clip = 0;
  return options;
}

inline std::string without_clip(const std::string& sharing) {
  return "kfac(" + sharing + ", kl=0, factors=2, inverses=4)";
}

struct CurvatureJob {
  std::string strategy = {};
  KfacOptions options = kfac_options();
  bool uneven = false;            // ranks have unequal parts, and say so
  bool in_one_call = false;       // parallel.step(pre, optimizer), else finish() and both steps
  std::string device_group = {};  // if steps are enqueued, by the code for devices, on the CPU
  int measured_steps = DataParallelOptions{}.measured_steps;
  double replan_above = DataParallelOptions{}.replan_above;
  double momentum = 0.9;         // unless a compressor has its own
  bool names_optimizer = false;  // its rates, not those of the options
  std::optional<doc::Cluster> cluster = {};
};

struct TrainedCurvature {
  std::vector<torch::Tensor> weights;
  KfacState state;
  std::vector<KfacStep> reports = {};
  std::int64_t host_waits = 0;
};

/// One rank of a training. `c`: null for a K-FAC that nobody shares.
template <typename Model = Net>
struct Program {
  explicit Program(comm::Communicator* c, const CurvatureJob& given = {},
                   torch::Dtype type = torch::kDouble, Model model = Model())
      : job(given),
        net((model->to(type), std::move(model))),
        optimizer(net->parameters(), torch::optim::SGDOptions(kRate).momentum(momentum_of_job())) {
    if (!job.device_group.empty()) as_device.emplace();
    if (job.names_optimizer) job.options.optimizer = &optimizer;
    pre.emplace(*net, job.options);
    if (c) share(*c);
  }
  void share(comm::Communicator& c) {
    parallel.emplace(*net, c,
                     DataParallelOptions{.strategy = job.strategy,
                                         .cluster = job.cluster,
                                         .measured_steps = job.measured_steps,
                                         .replan_above = job.replan_above,
                                         .preconditioner = &*pre,
                                         .device_group = job.device_group});
  }
  /// Goes on as another job from the state, by way of a file.
  void resume(comm::Communicator& c, const CurvatureJob& then) {
    const KfacState saved = kfac_state_of(to_tensors(state()), "a file");
    parallel.reset();
    job = then;
    pre.emplace(*net, job.options);
    share(c);
    parallel->load_curvature_state(saved);
  }

  /// A rank without samples has no pass.
  template <typename Batch = Data>
  void backward(const Batch& mine, double factor = 1) {
    const std::int64_t samples = mine.targets.size(0);
    optimizer.zero_grad();
    if (job.uneven && parallel) parallel->set_batch(samples);
    if (samples > 0) (loss_of(net, mine) * factor).backward();
  }
  KfacStep update() {
    const KfacStep done = pre->step();
    optimizer.step();
    return done;
  }
  template <typename Batch = Data>
  KfacStep step(const Batch& mine, double factor = 1) {
    backward(mine, factor);
    if (parallel && job.in_one_call) {
      last = parallel->step(*pre, optimizer);
      return {};
    }
    if (parallel) last = parallel->finish();
    return update();
  }
  void set_rate(double rate) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
  }
  /// Made if there is none yet.
  torch::optim::SGDParamState& momentum_of(const torch::Tensor& p) {
    auto& state = optimizer.state()[p.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<torch::optim::SGDParamState>();
    return static_cast<torch::optim::SGDParamState&>(*state);
  }
  /// Of those parameters that have one.
  std::vector<torch::Tensor> momenta() {
    std::vector<torch::Tensor> all;
    for (const auto& p : net->parameters())
      if (const torch::Tensor m = momentum_of(p).momentum_buffer(); m.defined())
        all.push_back(m.clone());
    return all;
  }
  TrainedCurvature ended() { return {weights(), state()}; }
  KfacState state() { return parallel ? parallel->curvature_state() : pre->save(); }
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

/// Where steps are enqueued, the host waits for the status of each eigendecomposition, and for
/// nothing else.
template <typename Model = Net>
TrainedCurvature trained(comm::Communicator* c, const Data& whole, const CurvatureJob& job = {}) {
  const Data mine = c ? whole.of(*c, job.uneven) : whole;
  Program<Model> program(c, job, whole.targets.scalar_type());
  std::vector<KfacStep> reports;
  std::int64_t host_waits = 0;
  const HostReads reads;
  for (int step = 0; step < kSteps; ++step) {
    const int before = HostReads::count();
    const std::optional<doc::Plan> plan =
        c ? std::optional(program.parallel->plan()) : std::nullopt;
    reports.push_back(program.step(mine));
    EXPECT_TRUE(reports.back().plain.empty()) << job.strategy;
    const int read = HostReads::count() - before;
    host_waits += program.last.host_waits;
    if (job.device_group.empty() || !c) continue;
    const std::int64_t solved = eigendecompositions(*plan, program.last.variant, c->rank());
    EXPECT_EQ(program.last.host_waits, solved) << job.strategy << ", step " << step;
    // Another plan may give layers other owners, by way of the host.
    if (program.parallel->plan().hash() == plan->hash()) {
      EXPECT_EQ(read, solved) << job.strategy << ", step " << step;
    }
  }
  return {program.weights(), {}, reports, host_waits};
}

/// The weights after steps [0, kSteps), by other objects for another job from `stop` on; in front
/// of it a step with `skipped`.
inline std::vector<torch::Tensor> resumed(comm::Communicator& c, const CurvatureJob& first,
                                          const CurvatureJob& then, const Data& mine,
                                          std::int64_t stop, const Data& skipped = {}) {
  Program<> program(&c, first);
  program.as_device.reset();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    if (step == stop && skipped.inputs.defined()) {
      program.backward(skipped);
      program.parallel->skip_step();
    }
    if (step == stop) program.resume(c, then);
    program.step(mine);
  }
  return program.weights();
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
