// K-FAC under every schedule of the learning rate: no run leaves the start far behind, and none
// ends worse than plain SGD.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "linerate/zoo/optimizer.hpp"
#include "small_training.hpp"

namespace linerate::zoo {
namespace {

TrainReport trained(TrainOptions o, const std::string& strategy, std::uint64_t seed) {
  o.threads = 1;
  o.seed = seed;
  o.strategy = strategy;
  return run(o, 1);
}

double mean_of_last(const std::vector<double>& losses) {
  constexpr std::ptrdiff_t kLast = 10;
  return std::accumulate(losses.end() - kLast, losses.end(), 0.0) / kLast;
}

TEST(KfacSchedules, DoNotLeaveTheStartBehind) {
  for (const std::string& schedule : schedules())
    for (const std::int64_t steps : {40, 75})
      for (const std::uint64_t seed : {1, 2}) {
        const auto place =
            schedule + ", " + std::to_string(steps) + " steps, seed " + std::to_string(seed);
        TrainOptions o;
        o.model = "lenet";
        o.input = models::Shape{1, 28, 28};
        o.classes = 10;
        o.samples = 1024;
        o.batch = 16;
        o.steps = steps;
        o.schedule = schedule;
        const auto sgd = trained(o, "ddp", seed).losses,
                   kfac = trained(o, "kfac(spd, factors=5, inverses=10)", seed).losses;
        ASSERT_EQ(kfac.size(), static_cast<std::size_t>(steps)) << place;
        const double largest = *std::max_element(kfac.begin(), kfac.end());
        EXPECT_LE(largest, 1.25 * kfac.front()) << place;
        EXPECT_LE(mean_of_last(kfac), mean_of_last(sgd) + 0.05) << place;
        std::printf("[ %s ] largest loss %.2f, last %.3f, SGD's %.3f\n", place.c_str(), largest,
                    mean_of_last(kfac), mean_of_last(sgd));
      }
}

/// By its defaults, where the clip of directions alone let runs diverge: a rate that rises tenfold
/// within 19 steps. bench/kfac_curves/schedules.py has longer runs and other schedules.
TEST(KfacSchedules, HoldAShortOneCycleOfImages) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "package dataset-fashion-mnist is not installed";
  TrainOptions o;
  o.data = "fashion-mnist";
  o.train_samples = 20000;
  o.test_samples = 1000;
  o.batch = 128;
  o.steps = 75;
  o.rate = 0.1;
  o.schedule = "one-cycle";
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const TrainReport sgd = trained(o, "ddp", seed), kfac = trained(o, "kfac(spd)", seed);
    const double largest = *std::max_element(kfac.losses.begin(), kfac.losses.end());
    EXPECT_LE(largest, 1.5 * kfac.losses.front()) << "seed " << seed;
    EXPECT_LE(kfac.tests.back().loss, sgd.tests.back().loss + 0.05) << "seed " << seed;
    std::printf("[ seed %d ] largest loss %.2f x the first, test loss %.3f, SGD's %.3f\n",
                static_cast<int>(seed), largest / kfac.losses.front(), kfac.tests.back().loss,
                sgd.tests.back().loss);
  }
}

}  // namespace
}  // namespace linerate::zoo
