// The suites of comm over c10d: a library that tests/comm/c10d/run_suites.py loads on every rank of
// a job, since it is Python that makes process groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/back_end_suite.hpp"
#include "comm/c10d/new_group.hpp"
#include "linerate/comm/c10d/c10d_channel.hpp"
#include "linerate/comm/c10d/c10d_world.hpp"

namespace linerate::comm {
namespace suite {
const char* (*new_group)() = nullptr;
}

using suite::new_group;

std::vector<int> numbers_of_ranks(std::vector<int>) { return {0}; }
void on_ranks(int, void (*run)(Communicator&), const CommunicatorOptions& options) {
  run(*make_world_of_group(new_group(), options));
}

namespace {

/// Worlds of two process groups are of one process, too.
TEST(C10dWorld, IsNoFasterThanItsLink) {
  const suite::UnderLink link(suite::kSlowLink);
  const auto one = make_world_of_group(new_group(), {.timeout = Duration{60}});
  const auto other = make_world_of_group(new_group(), {.timeout = Duration{60}});
  suite::expect_no_faster_than_the_link({one.get(), other.get()});
}

/// As torchrun says it, too.
bool is_rank_1() { return std::getenv("RANK") == std::string("1"); }

/// Processes of a loaded machine come seconds apart: the timeout is no limit for that.
TEST(C10dEndings, RanksMayComeLaterThanTheTimeout) {
  const char* const group = new_group();
  if (is_rank_1()) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const auto world = make_world_of_group(group, {.timeout = Duration{1}});
  suite::expect_sum(*world, 5, "all there");
}

TEST(C10dEndings, WhoDoesNotComeInTimeIsNamed) {
  const char* const group = new_group();
  if (is_rank_1()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return;
  }
  EXPECT_THAT(suite::error_of([&] {
                std::ignore = make_world_of_group(group, {.start_timeout = Duration{0.5}});
              }),
              ::testing::ContainsRegex("ranks? .*1.* did not come within 500"));
}

/// It takes a second to say which reason was the first.
struct SlowStore : ::c10d::HashStore {
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& value) override {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return HashStore::compareSet(key, expected, value);
  }
};

/// What this rank submits after its own abort() must not run, although nobody has heard of it yet.
TEST(C10dEndings, AnAbortCountsOnItsOwnRankFromTheCallOn) {
  const auto life = std::make_shared<Liveness>(0, 1, std::chrono::seconds(60), Clock::now());
  StoreBeats beats(c10::make_intrusive<SlowStore>(), life, std::chrono::seconds(60), [] {});
  EXPECT_EQ(beats.failure(), std::nullopt);
  beats.end_run("weights.bin is truncated");
  EXPECT_EQ(beats.failure(), "weights.bin is truncated");
}

TEST(C10dWorld, AGroupOfAnotherNameIsRefused) {
  EXPECT_ANY_THROW(make_world_of_group("no such group"));
}

}  // namespace
}  // namespace linerate::comm

extern "C" int linerate_run_suites(const char* (*make_group)(), const char* filter) {
  linerate::comm::suite::new_group = make_group;
  linerate::comm::suite::short_timeout =
      std::chrono::seconds(2);  // beats go through a process of Python
  const std::string option = std::string("--gtest_filter=") + filter;
  int count = 3;
  std::string brief = "--gtest_brief=1", program = "c10d_suites", chosen = option;
  char* arguments[] = {program.data(), chosen.data(), brief.data(), nullptr};
  ::testing::InitGoogleMock(&count, arguments);
  return RUN_ALL_TESTS();
}
