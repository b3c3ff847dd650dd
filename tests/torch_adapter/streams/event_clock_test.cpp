// Times by events of PyTorch's devices: which events, in which streams, and who waits.
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

#include <gmock/gmock.h>

#include <vector>

#include "torch_adapter/streams/logged_lines.hpp"

namespace linerate::torch_adapter {
namespace {

using support::guard_log;
using support::taken_calls;
using testing::ElementsAre;

class EventClockTest : public testing::Test {
 protected:
  EventClockTest() {
    support::forget_guard_calls();
    clock.follow({stream(0), stream(4)});
  }
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, support::logged_device(1), id);
  }
  EventClock clock{c10::DeviceType::PrivateUse1};
};

TEST_F(EventClockTest, MarksAreEventsWithTimesInTheirStream) {
  clock.set(0, 0);
  clock.set(1, 1);
  clock.set(0, 1);  // again
  EXPECT_THAT(taken_calls(), ElementsAre("1:0 sets a mark", "1:4 sets a mark", "1:4 sets a mark"));
  EXPECT_EQ(guard_log().marks_made, 2);
  EXPECT_EQ(guard_log().events_made, 0);
  clock.follow({stream(7)});
  clock.set(1, 0);
  EXPECT_THAT(taken_calls(), ElementsAre("1:7 sets a mark"));
}

TEST_F(EventClockTest, MillisecondsOfADeviceAreNanoseconds) {
  clock.set(0, 0);
  guard_log().device_ms = 2.5;
  clock.set(1, 1);
  EXPECT_EQ(clock.ns_between(0, 1), 2.5e6);
  EXPECT_EQ(clock.ns_between(1, 0), -2.5e6);
}

TEST_F(EventClockTest, NothingWaitsButTheHostWhenItIsToldTo) {
  guard_log().marks_wait = true;
  clock.set(0, 0);
  EXPECT_FALSE(clock.is_over(0));
  EXPECT_THAT(taken_calls(), ElementsAre("1:0 sets a mark"));
  clock.wait_for(0);
  EXPECT_THAT(taken_calls(), ElementsAre("host waits for a mark"));
  EXPECT_TRUE(clock.is_over(0));
}

}  // namespace
}  // namespace linerate::torch_adapter
