// The order of uses of bytes, and who gets freed memory, without a device.
#include "simulated_device/order.hpp"

#include <gmock/gmock.h>

#include "simulated_device/stream_pools.hpp"

namespace linerate::simulated {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

/// Two works of two streams on bytes 0..8, with a wait between them or without.
std::vector<Conflict> found_by(bool first_writes, bool then_writes, bool waits,
                               Range then = {0, 8}) {
  Order order;
  const std::vector<Range> bytes = {{0, 8}};
  order.work(1, "first", "", first_writes ? std::vector<Range>{} : bytes,
             first_writes ? bytes : std::vector<Range>{});
  if (waits) order.stream_learns(2, order.event(1));
  return order.work(2, "then", "", then_writes ? std::vector<Range>{} : std::vector{then},
                    then_writes ? std::vector{then} : std::vector<Range>{});
}

TEST(Order, FindsEachKindOfMissingWait) {
  const struct {
    bool first_writes, then_writes;
    const char* kind;
  } cases[] = {{true, false, "read after write"},
               {true, true, "write after write"},
               {false, true, "write after read"}};
  for (const auto& c : cases) {
    EXPECT_THAT(found_by(c.first_writes, c.then_writes, true), IsEmpty()) << c.kind;
    const auto found = found_by(c.first_writes, c.then_writes, false);
    ASSERT_THAT(found, SizeIs(1)) << c.kind;
    EXPECT_STREQ(found[0].kind, c.kind);
    EXPECT_EQ(found[0].before->name, "first");
  }
  EXPECT_THAT(found_by(false, false, false), IsEmpty()) << "two reads";
}

TEST(Order, IsKeptForEachByte) {
  EXPECT_THAT(found_by(true, true, false, {8, 16}), IsEmpty());
  const auto found = found_by(true, true, false, {7, 16});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].byte, 7u);
}

TEST(Order, PassesThroughOtherStreamsAndTheHost) {
  Order order;
  order.work(1, "write", "", {}, {{0, 8}});
  order.stream_learns(2, order.event(1));
  order.stream_learns(3, order.event(2));
  EXPECT_THAT(order.work(3, "read", "", {{0, 8}}, {}), IsEmpty());
  EXPECT_THAT(order.work(4, "read", "", {{0, 8}}, {}), SizeIs(1));
  order.host_learns(order.event(1));
  EXPECT_THAT(order.work(5, "read", "", {{0, 8}}, {}), IsEmpty());
}

/// An event stands for what was enqueued before it.
TEST(Order, AnEventStandsForWhatWasEnqueuedBeforeIt) {
  Order order;
  const Clock early = order.event(1);
  order.work(1, "write", "", {}, {{0, 8}});
  order.stream_learns(2, early);
  EXPECT_THAT(order.work(2, "read", "", {{0, 8}}, {}), SizeIs(1));
}

TEST(Order, AWriteWaitsForEveryRead) {
  Order order;
  for (const int stream : {1, 2, 3}) order.work(stream, "read", "", {{0, 8}}, {});
  order.stream_learns(4, order.event(2));
  EXPECT_THAT(order.work(4, "write", "", {}, {{0, 8}}), SizeIs(2));
}

TEST(StreamPools, GiveWhatWasFreedLastToWhoAsksNextInItsStream) {
  StreamPools pools;
  pools.give_back(1, 4096, 512);
  pools.give_back(1, 8192, 1000);
  EXPECT_EQ(pools.take(2, 100), std::nullopt) << "another stream";
  EXPECT_EQ(pools.take(1, 2000), std::nullopt) << "too large";
  EXPECT_EQ(pools.take(1, 100), 8192u);
  EXPECT_EQ(pools.take(1, 100), 8192u + 512) << "the rest of it";
  EXPECT_EQ(pools.take(1, 512), 4096u);
  EXPECT_EQ(pools.take(1, 512), std::nullopt);
}

}  // namespace
}  // namespace linerate::simulated
