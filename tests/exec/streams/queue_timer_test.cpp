// What a device takes, on a queue whose host and device a test knows.
#include "linerate/exec/streams/stream_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::exec {
namespace {

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
