// Records reach somebody: standard error where no sink is installed, else the sink.
#include "linerate/core/error.hpp"

#include <gmock/gmock.h>

#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace linerate {
namespace {

using testing::ElementsAre;

class Log : public testing::Test {
 protected:
  void TearDown() override { log::set_sink(nullptr); }

  template <typename Work>
  static std::string standard_error(Work&& work) {
    testing::internal::CaptureStderr();
    work();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, WarningsReachStandardErrorWithoutASinkAndInfoDoesNot) {
  EXPECT_EQ(standard_error([] {
              log::warning("ranks drift");
              log::info("all is well");
            }),
            "linerate: warning: ranks drift\n");
}

TEST_F(Log, ASinkTakesTheirPlaceUntilItIsTakenAway) {
  std::vector<std::string> got;
  log::set_sink([&got](log::Level level, const std::string& message) {
    got.push_back((level == log::Level::warning ? "warning " : "info ") + message);
  });
  EXPECT_EQ(standard_error([] {
              log::warning("a");
              log::info("b");
            }),
            "");
  log::set_sink(nullptr);
  EXPECT_EQ(standard_error([] { log::warning("c"); }), "linerate: warning: c\n");
  EXPECT_THAT(got, ElementsAre("warning a", "info b"));
}

TEST_F(Log, ASinkThatThrowsLosesNothingAndStopsNobody) {
  log::set_sink([](log::Level, const std::string&) { throw std::runtime_error("full"); });
  const std::string text = standard_error([] {
    log::warning("first");
    log::warning("second");
  });
  EXPECT_EQ(text, "linerate: warning: first\nlinerate: warning: second\n");
}

TEST_F(Log, ASinkThatLogsDoesNotWaitForItself) {
  std::vector<std::string> got;
  log::set_sink([&got](log::Level, const std::string& message) {
    got.push_back(message);
    log::warning("from the sink");
  });
  EXPECT_EQ(standard_error([] { log::warning("record"); }), "linerate: warning: from the sink\n");
  EXPECT_THAT(got, ElementsAre("record"));
}

// As with Python's interpreter lock, which a sink may need and another thread that logs may hold.
TEST_F(Log, ASinkMayWaitForAnotherThreadThatLogs) {
  std::mutex mutex;
  std::vector<std::string> got;
  log::set_sink([&](log::Level, const std::string& message) {
    if (message == "outer") std::thread([] { log::warning("inner"); }).join();
    const std::lock_guard lock(mutex);
    got.push_back(message);
  });
  log::warning("outer");
  EXPECT_THAT(got, ElementsAre("inner", "outer"));
}

TEST_F(Log, ASinkMayTakeItselfAway) {
  int calls = 0;
  log::set_sink([&calls](log::Level, const std::string&) {
    ++calls;
    log::set_sink(nullptr);
    ++calls;
  });
  log::warning("to the sink");
  EXPECT_EQ(standard_error([] { log::warning("gone"); }), "linerate: warning: gone\n");
  EXPECT_EQ(calls, 2);
}

TEST_F(Log, ThreadsLoseNoRecordWhileSinksChange) {
  std::mutex mutex;
  int got = 0;
  const log::Sink count = [&](log::Level, const std::string&) {
    const std::lock_guard lock(mutex);
    ++got;
  };
  log::set_sink(count);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        log::info("x");
        if (i % 100 == 0) log::set_sink(count);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got, 4000);
}

}  // namespace
}  // namespace linerate
