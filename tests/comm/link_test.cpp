// A link that paces what ranks send: when messages leave, and ranks that are threads.
#include "linerate/comm/communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>

#include "comm/ending_suite.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/comm/thread/thread_channel.hpp"
#include "linerate/comm/transport.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

using namespace std::chrono_literals;

/// A frame of 1448 bytes and 66 of headers takes a millisecond.
TEST(Pacer, MessagesLeaveOneAfterTheOther) {
  Pacer link(BytesPerSecond{1.514e6});
  const Clock::time_point begin{1h};
  const auto departure = [&](std::size_t bytes, Clock::duration ready) {
    return std::chrono::round<std::chrono::microseconds>(link.departure(bytes, begin + ready) -
                                                         begin);
  };
  EXPECT_EQ(departure(1448, 0s), 500us);  // an idle link has saved half a millisecond
  EXPECT_EQ(departure(1448, 100us), 1500us);
  EXPECT_EQ(departure(2 * 1448, 900us), 3500us);
  EXPECT_EQ(departure(1448, 3600us), 4500us);  // idle for less than it saves
  EXPECT_EQ(departure(1448, 1h), 1h + 500us);  // and for longer
  EXPECT_EQ(departure(0, 1h), 1h + 544us);     // headers alone, 66 of 1514 bytes
}

TEST(Link, OfLessThanABitPerSecondIsRefused) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const suite::UnderLink link(suite::kSlowLink);
  for (const double rate : {0.0, -1.0, 0.1, kNone})
    EXPECT_THROW(set_link(BytesPerSecond{rate}), UsageError) << rate;
  EXPECT_EQ(link_rate(), suite::kSlowLink);
}

/// Communicators of a process, as those of several process groups, send over one link.
TEST(Link, OfAProcessIsOne) {
  EXPECT_EQ(pacer_of_process(), nullptr);
  const suite::UnderLink link(suite::kSlowLink);
  const auto first = pacer_of_process();
  set_link(suite::kSlowLink);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(pacer_of_process(), first);
  EXPECT_NE(pacer_of_thread(), pacer_of_thread());
}

TEST(Link, TurnsDirectReadsOff) {
  const auto reads = [] {
    const auto world = std::make_shared<ThreadWorld>(2, 20s, 64, 0, true);
    return world->channel(0)->can_read_peers();
  };
  EXPECT_TRUE(reads());
  const suite::UnderLink link(suite::kSlowLink);
  EXPECT_FALSE(reads());
}

/// Messages arrive, each within the timeout: 128 KiB in 131 ms, 1.2 MB in 1.2 s.
TEST(Link, ACollectiveMayTakeLongerThanTheTimeout) {
  const suite::UnderLink link(BytesPerSecond{1e6});
  run_ranks(2, [](Communicator& comm) { suite::expect_sum(comm, 300'007, "x"); },
            {.timeout = Duration{1}});
}

/// At a kilobyte a second the first chunk would take two minutes.
TEST(Link, DoesNotDelayTheEndOfARun) {
  const suite::UnderLink link(BytesPerSecond{1e3});
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& comm) {
                           if (comm.rank() == 1) throw InputError("weights.bin", "truncated");
                           suite::expect_sum(comm, 300'007, "never complete");
                         }),
               InputError);
}

}  // namespace
}  // namespace linerate::comm
