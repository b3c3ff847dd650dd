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
  std::size_t marks() const { return set_ns_.size(); }
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

TEST(StreamTimes, AreConvertedToTheHostsClock) {
  Times t;
  t.clock->host += 1000;
  const std::int64_t a = t.times.now();
  t.clock->host += 500;
  const std::int64_t b = t.times.set_in(1);
  EXPECT_EQ(t.at(a), 1000);
  EXPECT_EQ(t.at(b), 1500);
}

TEST(StreamTimes, OfAFasterDeviceClockAreConvertedToTheHosts) {
  Times t;
  t.clock->rate = 1.001;  // since the comparison when it was made
  std::vector<std::int64_t> moments;
  for (int step = 0; step < 4; ++step) {
    t.clock->host += 1'000'000;
    t.times.begin_step();
    moments.push_back(t.times.now());
  }
  t.clock->host += 1'000'000;
  for (int step = 0; step < 4; ++step)
    EXPECT_EQ(t.at(moments[to_index(step)]), (step + 1) * 1'000'000);
}

/// Two of the host's moments are known of each comparison, and what it waited for lies between.
TEST(StreamTimes, LieAsFarOffAsTheComparisonsAreUncertain) {
  Times t;
  t.clock->host += 1'000'000;
  const std::int64_t moment = t.times.now();
  t.clock->host += 1'000'000;
  t.clock->wake_ns.fill(30'000);
  EXPECT_NEAR(static_cast<double>(t.at(moment)), 1'000'000, 15'000);
}

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

TEST(StreamTimes, TheLatestOfSeveralMarksHasATime) {
  Times t;
  const std::int64_t anchor = t.times.begin_step();
  t.clock->host += 10;
  const std::int64_t a = t.times.now();
  t.clock->host += 10;
  const std::int64_t b = t.times.set_in(1);
  const std::int64_t both = t.times.latest_of(std::vector{b, a});
  EXPECT_EQ(t.times.latest_of(std::vector{a}), a);
  EXPECT_EQ(t.times.latest_of({}), anchor);
  const std::int64_t after = t.times.latest_of(std::vector{both, a});
  EXPECT_EQ(t.at(both), 20);
  EXPECT_EQ(t.at(after), 20);
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

TEST(StreamTimes, MarksAreReused) {
  Times t;
  for (int step = 0; step < 100; ++step) {
    t.times.begin_step();
    for (int i = 0; i < 5; ++i) t.times.now();
  }
  EXPECT_EQ(t.clock->sets, 3 + 600);
  EXPECT_LE(t.clock->marks(), 8u);  // those of a step, its anchor and the one before
  EXPECT_EQ(t.times.read().size(), 3u + 600u + 3u);
}

}  // namespace
}  // namespace linerate::exec
