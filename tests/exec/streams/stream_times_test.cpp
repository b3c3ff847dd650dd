// Moments of a device by the host's clock, on clocks that a test moves.
#include "linerate/exec/streams/stream_times.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::exec {
namespace {

/// Time passes when the test says so, and in the three calls in which a clock is read or waited
/// for. What is set is over at once, or held until release().
class MovedClock final : public StreamClock {
 public:
  void set(MarkId mark, StreamId) override {
    ++sets;
    if (set_ns_.size() <= to_index(mark)) set_ns_.resize(to_index(mark) + 1);
    set_ns_[to_index(mark)] = held ? kNever : on_device();
  }
  bool is_over(MarkId mark) override { return set_ns_[to_index(mark)] < kNever; }
  void wait_for(MarkId mark) override {
    ++waits;
    if (!is_over(mark)) set_ns_[to_index(mark)] = on_device();
    host += wake_ns[reads_ / 2 % wake_ns.size()];
  }
  /// As CUDA: milliseconds in f32.
  double ns_between(MarkId first, MarkId then) override {
    const double ns = set_ns_[to_index(then)] - set_ns_[to_index(first)];
    return 1e6 * static_cast<double>(static_cast<float>(1e-6 * ns));
  }
  std::int64_t host_ns() override {
    ++reads_;
    return host;
  }

  void release() {
    held = false;
    for (double& ns : set_ns_)
      if (ns == kNever) ns = on_device();
  }
  double on_device() const { return rate * static_cast<double>(host - kBegan) + 777; }

  static constexpr std::int64_t kBegan = 5'000'000'000;
  std::int64_t host = kBegan;
  double rate = 1;
  std::array<std::int64_t, 3> wake_ns{};  // by try of a comparison, which reads the clock twice
  bool held = false;
  int sets = 0, waits = 0;

 private:
  static constexpr double kNever = HUGE_VAL;
  std::vector<double> set_ns_;
  std::size_t reads_ = 0;  // of the host's clock
};

struct Times {
  std::shared_ptr<MovedClock> clock = std::make_shared<MovedClock>();
  StreamTimes times{clock};

  std::int64_t at(std::int64_t moment) { return times.read()[to_index(moment)] - clock->kBegan; }
};

/// f32 counts 360 ms to 15 ns and an hour to 125 us. The errors of 10,000 steps add up as a random
/// walk's between two ends that are known: to 0.5 us in its middle (a standard deviation).
TEST(StreamTimes, AnHourIsMeasuredStepByStep) {
  Times t;
  std::vector<std::int64_t> anchors, begun_ns;
  for (std::int64_t step = 0; step < 10'000; ++step) {
    t.clock->host += 360'000'000 + step * 7919 % 100'000;
    anchors.push_back(t.times.begin_step());
    begun_ns.push_back(t.clock->host - t.clock->kBegan);
  }
  const std::vector<std::int64_t> read = t.times.read();
  for (std::size_t step = 0; step < anchors.size(); ++step)
    ASSERT_NEAR(static_cast<double>(read[to_index(anchors[step])] - t.clock->kBegan),
                static_cast<double>(begun_ns[step]), 3000)
        << step;
}

TEST(StreamTimes, AStepReadsWhatIsOverAndWaitsForNothing) {
  Times t;
  const int compared = t.clock->waits;
  t.times.begin_step();
  t.clock->held = true;
  const std::int64_t moment = t.times.now();
  for (int step = 0; step < 3; ++step) t.times.begin_step();
  EXPECT_EQ(t.clock->waits, compared);
  t.clock->host += 50;
  t.clock->release();
  t.clock->host += 50;
  t.times.begin_step();
  EXPECT_EQ(t.clock->waits, compared);
  EXPECT_EQ(t.at(moment), 50);
}

/// A comparison that somebody else's work disturbs is not taken.
TEST(StreamTimes, OfThreeComparisonsTheClosestCounts) {
  const auto clock = std::make_shared<MovedClock>();
  clock->wake_ns = {40'000, 200, 90'000};
  StreamTimes times(clock);
  clock->host += 1'000'000;
  const std::int64_t at_ns = clock->host;
  const std::int64_t moment = times.now();
  EXPECT_NEAR(static_cast<double>(times.read()[to_index(moment)]), static_cast<double>(at_ns), 101);
}

}  // namespace
}  // namespace linerate::exec
