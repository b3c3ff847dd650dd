// K-FAC under every schedule of the learning rate: no run leaves the start far behind, and none
// ends worse than plain SGD.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/zoo/schedule.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {
namespace {

std::vector<double> losses_of(const std::string& schedule, const std::string& strategy,
                              std::int64_t steps, std::uint64_t seed) {
  TrainOptions o;
  o.model = "lenet";
  o.input = models::Shape{1, 28, 28};
  o.classes = 10;
  o.samples = 1024;
  o.batch = 16;
  o.steps = steps;
  o.threads = 1;
  o.seed = seed;
  o.schedule = schedule;
  o.strategy = strategy;
  std::vector<double> losses;
  comm::run_ranks(1, [&](comm::Communicator& c) { losses = train(o, c).losses; });
  return losses;
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
        const std::vector<double> sgd = losses_of(schedule, "ddp", steps, seed);
        const std::vector<double> kfac =
            losses_of(schedule, "kfac(spd, factors=5, inverses=10)", steps, seed);
        ASSERT_EQ(kfac.size(), static_cast<std::size_t>(steps)) << place;
        const double largest = *std::max_element(kfac.begin(), kfac.end());
        EXPECT_LE(largest, 1.25 * kfac.front()) << place;
        EXPECT_LE(mean_of_last(kfac), mean_of_last(sgd) + 0.05) << place;
        std::printf("[ %s ] largest loss %.2f, last %.3f, SGD's %.3f\n", place.c_str(), largest,
                    mean_of_last(kfac), mean_of_last(sgd));
      }
}

}  // namespace
}  // namespace linerate::zoo
