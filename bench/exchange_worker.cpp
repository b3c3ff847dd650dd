// linerate's side of bench/exchange: one rank that trains when told to, by commands on stdin.
//
//   check STRATEGY FILE
//     writes the gradients of one step from the given parameters, as f32 in parameter order
//   run STRATEGY STEPS
//     trains; answers {"step_s": [...], "cpu_s": [...], "exposed_s": [...], ...} on one line
//   loss STRATEGY SEED:STEPS
//     trains from the parameters of that seed, as a model of its own; answers {"loss": ..., "hash":
//     ...}: the loss of this rank's batch, and the bits of its weights
//
// STRATEGY "barrier": nothing is exchanged, the ranks only wait for each other at the end of
// backward. No exchange can be faster.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/keep_memory.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/zoo/network.hpp"
#include "own_floor.hpp"

using namespace linerate;

namespace {

at::Tensor load(const std::string& path, at::ScalarType type, at::IntArrayRef shape) {
  std::string bytes = read_file(path);
  return torch::from_blob(bytes.data(), shape, type).clone();
}

double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(steady_ns() - start_ns) * 1e-9;
}

/// The median without the first step of a block, which wakes up caches and threads.
double settled(std::vector<double> values) {
  if (values.size() > 1) values.erase(values.begin());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of this process, all its threads.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<at::Tensor> tensors(const zoo::Network& model) {
  std::vector<at::Tensor> list;
  for (const auto& [name, tensor] : model.parameters()) list.push_back(tensor);
  return list;
}

/// One model under one strategy; both sides of the bench start from the parameters in `folder`.
struct Contender {
  std::string folder;
  zoo::Network model;
  std::vector<at::Tensor> parameters;
  comm::Communicator& communicator;
  exec::Recorder recorder;
  std::optional<torch_adapter::DataParallel> parallel;  // none: "barrier"
  torch::optim::SGD optimizer;
  at::Tensor x, y;

  Contender(const std::string& name, const std::string& strategy, const std::string& files,
            std::int64_t batch, comm::Communicator& ranks)
      : folder(files),
        model(models::describe(name, {.input = models::Shape{3, 32, 32}, .classes = 10})),
        parameters(tensors(model)),
        communicator(ranks),
        recorder(ranks, exec::agree_origin(ranks), "trained"),
        optimizer(parameters, torch::optim::SGDOptions(0.01).momentum(0.9)),
        x(load(fmt::format("{}/x{}", folder, communicator.rank()), at::kFloat, {batch, 3, 32, 32})),
        y(load(fmt::format("{}/y{}", folder, communicator.rank()), at::kLong, {batch})) {
    if (strategy != "barrier")
      parallel.emplace(
          model.parameters(), model.buffers(), communicator,
          torch_adapter::DataParallelOptions{.strategy = strategy, .recorder = &recorder});
    model.train(true);
    reset();
  }

  void reset(int seed = 1) {
    const torch::NoGradGuard no_grad;
    std::int64_t elements = 0;
    for (const at::Tensor& p : parameters) elements += p.numel();
    const at::Tensor flat =
        load(fmt::format("{}/parameters{}", folder, seed), at::kFloat, {elements});
    std::int64_t at = 0;
    for (at::Tensor& p : parameters) {
      p.copy_(flat.narrow(0, at, p.numel()).view(p.sizes()));
      at += p.numel();
    }
  }

  at::Tensor loss() { return torch::nn::functional::cross_entropy(model.forward(x), y); }

  /// Of the forward pass, loss included, and of autograd with its hooks.
  struct Computed {
    double forward_s = 0, backward_s = 0;
  };
  Computed backward() {
    optimizer.zero_grad();
    Computed took;
    std::int64_t start = steady_ns();
    const at::Tensor value = loss();
    took.forward_s = seconds_since(start);
    start = steady_ns();
    value.backward();
    took.backward_s = seconds_since(start);
    return took;
  }

  torch_adapter::StepReport step(Computed& took) {
    took = backward();
    if (parallel) return parallel->step(optimizer);
    communicator.barrier("end of backward")->wait();
    optimizer.step();
    return {};
  }

  /// Of what was recorded from `first_event` on. Absent where the line rate is not known, or
  /// own_floor_s() knows none.
  std::optional<double> own_floor(std::optional<BytesPerSecond> line_rate, std::size_t first_event,
                                  const bench::ComputedParts& parts) const {
    if (!parallel || !line_rate) return std::nullopt;
    doc::Timeline recorded = recorder.timeline();
    recorded.events.erase(recorded.events.begin(),
                          recorded.events.begin() + static_cast<std::ptrdiff_t>(first_event));
    return bench::own_floor_s(parallel->plan(), parallel->workload(), recorded, parts, *line_rate);
  }

  /// What the collectives recorded so far took.
  double communication_s() const {
    double sum = 0;
    for (const doc::Event& e : recorder.timeline().events)
      if (doc::is_communication(e.kind)) sum += e.seconds();
    return sum;
  }

  void check(const std::string& path) {
    reset();
    backward();
    parallel->finish();
    std::ofstream file(path, std::ios::binary);
    for (const at::Tensor& p : parameters) {
      const at::Tensor dense = p.grad().contiguous();
      file.write(static_cast<const char*>(dense.data_ptr()),
                 static_cast<std::streamsize>(dense.nbytes()));
    }
    reset();
  }

  std::string train(int seed, int steps) {
    reset(seed);
    Computed ignored;
    for (int i = 0; i < steps; ++i) step(ignored);
    if (parallel) parallel->settle();
    const torch::NoGradGuard no_grad;
    std::uint64_t bits = kHashStart;
    for (const at::Tensor& p : parameters)
      bits = hash_bytes({static_cast<const char*>(p.const_data_ptr()), p.nbytes()}, bits);
    return fmt::format(R"({{"loss": {}, "hash": "{:x}"}})", loss().item<double>(), bits);
  }

  std::string run(int steps, std::optional<BytesPerSecond> line_rate) {
    std::vector<double> step_s, cpu_s, exposed_s, copy_s, forward_s, backward_s, floor_s;
    const double before_s = communication_s();
    std::size_t first_event = 0;
    for (int i = 0; i < steps; ++i) {
      const std::int64_t start = steady_ns();
      const double cpu = cpu_seconds();
      Computed took;
      const torch_adapter::StepReport report = step(took);
      step_s.push_back(seconds_since(start));
      forward_s.push_back(took.forward_s);
      backward_s.push_back(took.backward_s);
      cpu_s.push_back(cpu_seconds() - cpu);
      exposed_s.push_back(report.exposed_s);
      copy_s.push_back(report.copy_s);
      if (i == 0) first_event = recorder.timeline().events.size();
    }
    if (parallel) parallel->settle();
    if (const auto floor = own_floor(line_rate, first_event,
                                     {settled(forward_s), settled(backward_s), settled(copy_s)}))
      floor_s.assign(step_s.size(), *floor);
    return fmt::format(
        R"({{"step_s": [{}], "cpu_s": [{}], "exposed_s": [{}], "copy_s": [{}], "forward_s": [{}], )"
        R"("communication_s": [{}], "own_floor_s": [{}], "buckets": {}}})",
        fmt::join(step_s, ", "), fmt::join(cpu_s, ", "), fmt::join(exposed_s, ", "),
        fmt::join(copy_s, ", "), fmt::join(forward_s, ", "),
        fmt::join(std::vector<double>(step_s.size(), (communication_s() - before_s) / steps), ", "),
        fmt::join(floor_s, ", "), parallel ? parallel->plan().variants.back().buckets().size() : 0);
  }
};

void serve(const std::string& model, const std::string& folder, std::int64_t batch,
           std::optional<BytesPerSecond> line_rate) {
  const auto communicator = comm::make_world({.expected_size = 2});
  std::map<std::string, std::unique_ptr<Contender>> contenders;
  std::string verb, strategy, argument;
  while (std::cin >> verb >> strategy >> argument) {
    if (verb == "loss") {
      const std::size_t colon = argument.find(':');
      std::cout << Contender(model, strategy, folder, batch, *communicator)
                       .train(std::stoi(argument), std::stoi(argument.substr(colon + 1)))
                << std::endl;
      continue;
    }
    std::unique_ptr<Contender>& contender = contenders[strategy];
    if (!contender)
      contender = std::make_unique<Contender>(model, strategy, folder, batch, *communicator);
    std::string answer = "{}";
    if (verb == "run") {
      answer = contender->run(std::stoi(argument), line_rate);
    } else {
      contender->check(argument);
    }
    std::cout << answer << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr,
               "usage: exchange_worker MODEL FOLDER BATCH keep|default RATE|- (started by "
               "bench/exchange)\n");
    return 2;
  }
  at::set_num_threads(1);
  if (std::string_view(argv[4]) == "keep") keep_freed_memory();
  try {
    const std::string_view rate = argv[5];
    serve(argv[1], argv[2], std::stoll(argv[3]),
          rate == "-" ? std::nullopt : std::optional(parse_rate(rate)));
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 4;
  }
}
