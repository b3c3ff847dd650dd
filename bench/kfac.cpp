// Steps and seconds of K-FAC, Adam and Nesterov's momentum to a loss, on the autoencoder benchmark.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kfac/autoencoder_training.hpp"

namespace linerate::torch_adapter {
namespace {

using namespace autoencoder;

constexpr std::array kTargets{4.0, 2.0, 1.0};

/// Steps and seconds of CPU time to each target, the measurement of the loss not counted. One
/// thread computes: what else runs on the machine does not count either.
struct Result {
  std::array<std::optional<std::pair<int, double>>, 3> reached;
  double step_s = 0;
};

Result run(Training& training, int most, double seconds) {
  Result result;
  double spent = 0;
  int k = 0;
  for (std::size_t target = 0; k < most && spent < seconds && target < kTargets.size();) {
    const std::clock_t start = std::clock();
    training.step();
    spent += static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ++k;
    const double excess = training.excess();
    if (!std::isfinite(excess)) break;
    while (target < kTargets.size() && excess <= kTargets[target])
      result.reached[target++] = {k, spent};
  }
  result.step_s = spent / k;
  return result;
}

void print(const std::string& name, const Result& result) {
  std::string line = fmt::format("{:<34}", name);
  for (const auto& reached : result.reached)
    line += reached ? fmt::format("{:>7} {:>7.2f}", reached->first, reached->second)
                    : fmt::format("{:>7} {:>7}", "-", "-");
  fmt::print("{} {:>8.2f}\n", line, result.step_s * 1e3);
  std::fflush(stdout);
}

template <typename Make>
void print_rates(const std::string& name, Make&& make, const std::vector<double>& rates,
                 double seconds) {
  for (const double rate : rates)
    print(fmt::format("{}, rate {}", name, rate), run(*make(rate), 1 << 20, seconds));
}

/// The golden value of the first step: a bench of something else would show nothing.
void check() {
  Clipped training(kfac_options(Fisher::empirical));
  training.step();
  if (std::abs(training.excess() / 30.9616811996 - 1) > 1e-8) {
    fmt::print(stderr, "excess after one step: expected 30.9616811996, found {:.10f}\n",
               training.excess());
    std::exit(70);
  }
}

int bench(double seconds) {
  at::set_num_threads(1);
  check();
  fmt::print("{:<34}{:>15}{:>15}{:>15} {:>8}\n", "steps and seconds to an excess of", "4", "2", "1",
             "ms/step");
  print_rates("Nesterov", FirstOrder::nesterov, {0.003, 0.01, 0.02, 0.03, 0.1}, seconds);
  print_rates("Adam", FirstOrder::adam, {0.001, 0.003, 0.01, 0.03}, seconds);
  for (const auto& [name, fisher] :
       {std::pair{"Monte-Carlo", Fisher::monte_carlo}, std::pair{"empirical", Fisher::empirical}}) {
    Clipped clipped(kfac_options(fisher));
    print(fmt::format("K-FAC {}, clip 1e-3", name), run(clipped, 1 << 20, seconds));
  }
  return 0;
}

}  // namespace
}  // namespace linerate::torch_adapter

int main(int argc, char** argv) {
  return linerate::torch_adapter::bench(argc > 1 ? std::atof(argv[1]) : 20);
}
