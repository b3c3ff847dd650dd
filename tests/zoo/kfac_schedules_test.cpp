// K-FAC under every schedule of the learning rate: no run leaves the start far behind, and none
// ends worse than plain SGD.
#include <gmock/gmock.h>

#include <filesystem>
#include <numeric>

#include "linerate/zoo/optimizer.hpp"
#include "small_training.hpp"

namespace linerate::zoo {
namespace {

TrainReport trained(TrainOptions o, const std::string& strategy, std::uint64_t seed) {
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
        TrainOptions o = mlp();
        o.model = "lenet";
        o.input = models::Shape{1, 28, 28};
        o.samples = 1024;
        o.steps = steps;
        o.schedule = schedule;
        const auto sgd = trained(o, "ddp", seed).losses,
                   kfac = trained(o, "kfac(spd, factors=5, inverses=10)", seed).losses;
        ASSERT_EQ(kfac.size(), static_cast<std::size_t>(steps)) << place;
        EXPECT_THAT(kfac, testing::Each(testing::Le(1.25 * kfac.front()))) << place;
        EXPECT_LE(mean_of_last(kfac), mean_of_last(sgd) + 0.05) << place;
      }
}

/// By its defaults, where the clip of directions alone let runs diverge: a rate that rises tenfold
/// within 19 steps. bench/kfac_curves/schedules.py has longer runs and other schedules.
TEST(KfacSchedules, HoldAShortOneCycleOfImages) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "package dataset-fashion-mnist is not installed";
  TrainOptions o;
  o.threads = 1;
  o.data = "fashion-mnist";
  o.train_samples = 20000;
  o.test_samples = 1000;
  o.batch = 128;
  o.steps = 75;
  o.rate = 0.1;
  o.schedule = "one-cycle";
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const TrainReport sgd = trained(o, "ddp", seed), kfac = trained(o, "kfac(spd)", seed);
    EXPECT_THAT(kfac.losses, testing::Each(testing::Le(1.5 * kfac.losses.front()))) << seed;
    EXPECT_LE(kfac.tests.back().loss, sgd.tests.back().loss + 0.05) << "seed " << seed;
  }
}

}  // namespace
}  // namespace linerate::zoo
