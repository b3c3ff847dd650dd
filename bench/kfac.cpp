// Steps and seconds of K-FAC, Adam and Nesterov's momentum to a loss, on the autoencoder benchmark.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "linerate/core/clock.hpp"
#include "torch_adapter/kfac/autoencoder_training.hpp"

namespace linerate::torch_adapter {
namespace {

using namespace autoencoder;

constexpr std::array kTargets{4.0, 2.0, 1.0};

/// Steps and seconds to each target, the measurement of the loss not counted.
struct Result {
  std::array<std::optional<std::pair<int, double>>, 3> reached;
  double step_s = 0;
};

Result run(Training& training, int most, double seconds) {
  Result result;
  double spent = 0;
  int k = 0;
  for (std::size_t target = 0; k < most && spent < seconds && target < kTargets.size();) {
    const std::int64_t start = steady_ns();
    training.step();
    spent += static_cast<double>(steady_ns() - start) * 1e-9;
    ++k;
    const double excess = training.excess();
    if (!std::isfinite(excess)) break;
    while (target < kTargets.size() && excess <= kTargets[target])
      result.reached[target++] = {k, spent};
  }
  result.step_s = spent / k;
  return result;
}

/// The better of two: fewer steps to the lowest target that either has reached.
bool is_better(const Result& a, const Result& b) {
  for (std::size_t t = kTargets.size(); t-- > 0;) {
    if (a.reached[t] && b.reached[t]) return a.reached[t]->first < b.reached[t]->first;
    if (a.reached[t] || b.reached[t]) return a.reached[t].has_value();
  }
  return false;
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
Result best_of(Make&& make, const std::vector<double>& rates, double seconds) {
  std::optional<Result> best;
  for (const double rate : rates) {
    const Result result = run(*make(rate), 1 << 20, seconds);
    if (!best || is_better(result, *best)) best = result;
  }
  return *best;
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
  print("Nesterov, best of .003 to .1",
        best_of(FirstOrder::nesterov, {0.003, 0.01, 0.02, 0.03, 0.1}, seconds));
  print("Adam, best of .001 to .03",
        best_of(FirstOrder::adam, {0.001, 0.003, 0.01, 0.03}, seconds));
  for (const auto& [name, fisher] :
       {std::pair{"Monte-Carlo", Fisher::monte_carlo}, std::pair{"empirical", Fisher::empirical}}) {
    SelfTuning tuned(kfac_options(fisher));
    print(fmt::format("K-FAC {}, LM", name), run(tuned, 1 << 20, seconds));
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
