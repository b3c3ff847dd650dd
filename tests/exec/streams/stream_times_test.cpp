// Moments of a device by the host's clock, on clocks that a test moves.
#include "linerate/exec/streams/stream_times.hpp"

#include <gmock/gmock.h>

#include <algorithm>
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

// What a device takes, on a queue whose host and device a test knows.

constexpr std::int64_t kFillNs = 100'000;

/// A device with one stream, and its host: work takes both as long as the test says.
class KnownQueue final : public StreamClock {
 public:
  void enqueue(std::int64_t on_host_ns, std::int64_t on_device_ns) {
    host += on_host_ns;
    free_at_ = std::max(host, free_at_) + on_device_ns;
  }
  /// What a host that reads a value does.
  void host_waits() { host = std::max(host, free_at_); }

  void set(MarkId mark, StreamId) override {
    if (set_ns_.size() <= to_index(mark)) set_ns_.resize(to_index(mark) + 1);
    set_ns_[to_index(mark)] = std::max(host, free_at_);
  }
  bool is_over(MarkId mark) override { return set_ns_.at(to_index(mark)) <= host; }
  void wait_for(MarkId mark) override { host = std::max(host, set_ns_.at(to_index(mark))); }
  double ns_between(MarkId first, MarkId then) override {
    return static_cast<double>(set_ns_.at(to_index(then)) - set_ns_.at(to_index(first)));
  }
  std::int64_t host_ns() override { return host; }

  std::int64_t host = 0;

 private:
  std::int64_t free_at_ = 0;
  std::vector<std::int64_t> set_ns_;
};

struct Timed {
  std::shared_ptr<KnownQueue> queue = std::make_shared<KnownQueue>();
  QueueTimer timer{queue, [this] { queue->enqueue(10, kFillNs); }};

  QueuedCalls calls(int count, std::int64_t on_host_ns, std::int64_t on_device_ns) const {
    return {count,
            [this, on_host_ns, on_device_ns](int) { queue->enqueue(on_host_ns, on_device_ns); }};
  }
};

/// Each by itself, in a row. Other work keeps a device that is faster than its host busy until all
/// is enqueued. Without it the time would be the host's.
TEST(QueueTimer, TimesDevicesThatAreSlowerOrFasterThanTheirHost) {
  struct Work {
    int count;
    std::int64_t host_ns, device_ns;
  };
  const std::vector<Work> work = {
      {4, 2000, 7000}, {2, 9000, 10}, {1, 500, 30'000}, {8, 100, 5000}, {8, 90'000, 300}};
  Timed t;
  std::vector<QueuedCalls> calls;
  for (const Work& w : work) calls.push_back(t.calls(w.count, w.host_ns, w.device_ns));
  const std::vector<CallTimes> found = t.timer.time(calls, 3);
  ASSERT_EQ(found.size(), work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {
    EXPECT_DOUBLE_EQ(found[i].device_s, 1e-9 * static_cast<double>(work[i].device_ns));
    EXPECT_DOUBLE_EQ(found[i].host_s, 1e-9 * static_cast<double>(work[i].host_ns));
    EXPECT_TRUE(found[i].was_queued);
  }
}

/// A queue of launches that is full holds the host up while the device works off what was to keep
/// it busy: 3 ms of the host's are three such calls, of whichever work takes it longest.
TEST(QueueTimer, DoesNotOverfillTheQueue) {
  Timed t;
  int calls = 0;
  const QueuedCalls long_ones = {8, [&](int call) {
                                   ++calls;
                                   EXPECT_LT(call, calls <= 2 * 8 ? 8 : 3);
                                   t.queue->enqueue(1'000'000, 500);
                                 }};
  const QueuedCalls others = t.calls(8, 10, 700);
  const std::vector<CallTimes> found = t.timer.time({long_ones, others}, 5);
  EXPECT_EQ(calls, 2 * 8 + 5 * 3);
  EXPECT_DOUBLE_EQ(found[0].device_s, 500e-9);
  EXPECT_DOUBLE_EQ(found[0].host_s, 1e-3);
  EXPECT_DOUBLE_EQ(found[1].device_s, 700e-9);
  EXPECT_TRUE(found[0].was_queued);
}

/// Work that reads a value empties the queue, whatever was in it.
TEST(QueueTimer, SaysWhereTheHostWaits) {
  Timed t;
  const QueuedCalls reads = {4, [&t](int) {
                               t.queue->enqueue(100, 1000);
                               t.queue->host_waits();
                             }};
  const std::vector<CallTimes> found = t.timer.time({reads, t.calls(4, 100, 1000)}, 3);
  EXPECT_FALSE(found[0].was_queued);
  EXPECT_TRUE(found[1].was_queued);
  EXPECT_GE(found[0].device_s, 1000e-9);
}

/// A first call loads code; a single one later is held up.
TEST(QueueTimer, TakesTheMedianOfRoundsAfterTheFirstOnes) {
  Timed t;
  int calls = 0;
  const QueuedCalls work = {2, [&](int call) {
                              const int round = calls++ / 2;
                              EXPECT_EQ(call, (calls - 1) % 2);
                              t.queue->enqueue(10, round == 0 || round == 4 ? 1'000'000 : 2000);
                            }};
  EXPECT_DOUBLE_EQ(t.timer.time({work}, 5).at(0).device_s, 2000e-9);
  EXPECT_EQ(calls, 2 * (2 + 5));
}

TEST(QueueTimer, TakesTheHostsClockWhereWorkIsDoneAtOnce) {
  const auto queue = std::make_shared<KnownQueue>();
  QueueTimer timer(queue, {});
  EXPECT_TRUE(timer.is_immediate());
  int calls = 0;
  const CallTimes found = timer
                              .time({{2,
                                      [&](int) {
                                        ++calls;
                                        queue->enqueue(700, 0);
                                      }}},
                                    3)
                              .at(0);
  EXPECT_DOUBLE_EQ(found.device_s, 700e-9);
  EXPECT_EQ(found.host_s, 0);
  EXPECT_TRUE(found.was_queued);
  EXPECT_EQ(calls, 2 * (1 + 3));
}

}  // namespace
}  // namespace linerate::exec
