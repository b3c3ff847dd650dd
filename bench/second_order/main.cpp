// Steps of S-SGD and of K-FAC's strategies side by side on real ranks, and what they are made of.
//
//   tools/mpirun -n 2 build/release/bench/second_order --model resnet18 --batch 128
//   tools/mpirun -n 4 build/release/bench/second_order --model autoencoder
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/keep_memory.hpp"
#include "linerate/zoo/timed_training.hpp"
#include "second_order/autoencoder.hpp"
#include "second_order/parts.hpp"

namespace linerate::bench {
namespace {

/// Every kind of step comes once in so many; with the largest layers, which the default leaves out.
constexpr const char* kCycle = "factors=2, inverses=4, largest=16384";
constexpr int kCycleSteps = 4;

struct Options {
  std::string model = "resnet18", data = "fashion-mnist";
  std::int64_t batch = 128, samples = 4096;
  int rounds = 3, checked_steps = 4;
  std::vector<std::string> methods{"spd", "mem", "mem, subsample=2", "hybrid", "mpd", "d", "dp"};
};

/// "" is S-SGD.
std::string strategy_of(const std::string& method) {
  return method.empty() ? "ddp" : fmt::format("ddp+kfac({}, {})", method, kCycle);
}

zoo::TrainOptions train_options(const Options& o, const std::string& method, std::int64_t batch) {
  zoo::TrainOptions t;
  t.model = o.model;
  t.data = o.data;
  t.train_samples = o.samples;
  t.test_samples = 100;
  t.batch = batch;
  t.threads = 1;
  t.rate = 0.03;
  t.checked_steps = 0;
  t.strategy = strategy_of(method);
  return t;
}

/// The loss after a few steps: what shares its curvature exactly ends where `d` ends.
double loss_of(const Options& o, const std::string& method, comm::Communicator& ranks) {
  if (o.model == "autoencoder") {
    Autoencoder training(strategy_of(method), ranks);
    for (int k = 1; k < o.checked_steps; ++k) training.step();
    double loss = training.step();
    ranks.all_reduce(comm::buffer(loss), comm::Reduce::sum, "loss")->wait();
    return loss / ranks.size();
  }
  zoo::TrainOptions options = train_options(o, method, std::min<std::int64_t>(o.batch, 16));
  options.steps = o.checked_steps;
  options.schedule = "constant";
  return zoo::train(options, ranks).losses.back();
}

bool is_exact(const std::string& method) {
  return !method.empty() && method.find("dp") == std::string::npos &&
         method.find("subsample") == std::string::npos;
}

void check(const Options& o, comm::Communicator& ranks) {
  std::optional<double> expected;
  for (const std::string& method : o.methods) {
    if (!is_exact(method)) continue;
    const double found = loss_of(o, method, ranks);
    if (!expected) expected = found;
    if (!(std::abs(found / *expected - 1) <= 2e-3))
      throw Error(70,
                  fmt::format("kfac({}): expected the loss {} after {} steps, as of the others; "
                              "found {}",
                              method, *expected, o.checked_steps, found));
  }
}

/// Records so many steps.
using Run = std::function<doc::Timeline(std::int64_t)>;

Run start(const Options& o, const std::string& method, comm::Communicator& ranks) {
  if (o.model == "autoencoder")
    return [training = std::make_shared<Autoencoder>(strategy_of(method), ranks)](
               std::int64_t steps) { return training->run(steps); };
  auto training = std::make_shared<zoo::TimedTraining>(train_options(o, method, o.batch), ranks,
                                                       "kfac(" + method + ")");
  training->warm_up(2);
  return [training](std::int64_t steps) { return training->run(steps).timeline; };
}

void print_row(const std::string& name, const Parts& p, double base) {
  fmt::print("{:<28} {:8.1f} {:6.3f} {:8.1f} {:8.1f} {:8.1f} {:8.1f} {:8.1f}\n", name, p.step * 1e3,
             p.step / base, p.pass * 1e3, p.factors * 1e3, p.inverses * 1e3, p.precondition * 1e3,
             p.rest * 1e3);
}

/// Medians of the kinds of steps, weighted as the two schedules have them.
void print(const std::string& method, const PartsOfSteps& steps, double base) {
  const Parts all = median_step(steps.at("")), factors = median_step(steps.at("factors")),
              stale = median_step(steps.at("stale"));
  print_row(fmt::format("kfac({}) 10/100", method),
            weighted({{0.01, all}, {0.09, factors}, {0.90, stale}}), base);
  print_row(fmt::format("kfac({}) 1/1", method), all, base);
}

void bench(const Options& o, comm::Communicator& ranks) {
  check(o, ranks);
  std::vector<std::string> methods = o.methods;
  methods.insert(methods.begin(), "");
  std::vector<Run> runs;
  for (const std::string& method : methods) runs.push_back(start(o, method, ranks));
  std::vector<PartsOfSteps> steps(methods.size());
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t m = 0; m < methods.size(); ++m)
      add_steps(runs[m](methods[m].empty() ? 2 : kCycleSteps), steps[m]);
  if (ranks.rank() != 0) return;
  fmt::print("{}, {} ranks, batch {} a rank, {} rounds; ms, each moment in one part\n", o.model,
             ranks.size(), o.model == "autoencoder" ? 500 / ranks.size() : o.batch, o.rounds);
  fmt::print("{:<28} {:>8} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "", "step", "x", "pass",
             "factors", "inverses", "precond.", "rest");
  const Parts dense = median_step(steps[0].at(""));
  print_row("S-SGD", dense, dense.step);
  for (std::size_t m = 1; m < methods.size(); ++m) print(methods[m], steps[m], dense.step);
}

}  // namespace
}  // namespace linerate::bench

int main(int argc, char** argv) {
  using namespace linerate;
  bench::Options o;
  CLI::App app("Steps with K-FAC beside S-SGD's; start with mpirun.");
  app.add_option("--model", o.model, "autoencoder, or a network of the zoo")->capture_default_str();
  app.add_option("--data", o.data)->capture_default_str();
  app.add_option("--batch", o.batch, "samples a rank")->capture_default_str();
  app.add_option("--samples", o.samples)->capture_default_str();
  app.add_option("--rounds", o.rounds, "of each method in turn")->capture_default_str();
  app.add_option("--kfac", o.methods, "options in kfac(...), one method each")
      ->delimiter(';')
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    keep_freed_memory();
    at::set_num_threads(1);
    const auto ranks = comm::make_world({});
    bench::bench(o, *ranks);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 4;
  }
}
