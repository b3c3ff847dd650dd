// The conformance suite on ranks that are threads, and what only threads can show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator_suite.hpp"
#include "linerate/comm/thread/run_ranks.hpp"

namespace linerate::comm {
namespace {

using suite::Array;
using ::testing::HasSubstr;

class ThreadSuite : public ::testing::TestWithParam<std::tuple<int, suite::Case>> {};

TEST_P(ThreadSuite, Holds) {
  const auto& [ranks, one] = GetParam();
  run_ranks(ranks, one.run);
}

std::string name_of_case(const ::testing::TestParamInfo<ThreadSuite::ParamType>& info) {
  return std::string(std::get<1>(info.param).name) + "On" + std::to_string(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadSuite,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5),
                                            ::testing::ValuesIn(suite::kCases)),
                         name_of_case);

TEST(RunRanks, RethrowsTheFirstErrorAndWakesThePeers) {
  try {
    run_ranks(3, [](Communicator& comm) {
      if (comm.rank() == 1) throw InputError("weights.bin", "truncated");
      comm.barrier("never complete")->wait();
    });
    FAIL() << "no error";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "weights.bin: truncated");
  }
}

TEST(RunRanks, APeerLearnsWhoFailed) {
  std::string seen;
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& comm) {
                           if (comm.rank() == 1) throw InputError("weights.bin", "truncated");
                           try {
                             comm.barrier("gate")->wait();
                           } catch (const CommError& e) {
                             seen = e.what();
                           }
                         }),
               InputError);
  EXPECT_THAT(seen, HasSubstr("rank 1 failed: weights.bin: truncated"));
  EXPECT_THAT(seen, HasSubstr("barrier \"gate\""));
}

TEST(RunRanks, ARankThatReturnsEarlyIsNamed) {
  try {
    run_ranks(3, [](Communicator& comm) {
      if (comm.rank() != 2) comm.barrier("gate")->wait();
    });
    FAIL() << "no error";
  } catch (const CommError& e) {
    EXPECT_THAT(e.what(), HasSubstr("rank 2 left"));
  }
}

TEST(ThreadLarge, MoreThanAnIntOfBytes) {
  if (suite::available_memory() < 4 * suite::kHuge) GTEST_SKIP() << "needs 8.6 GB of free memory";
  run_ranks(2, suite::more_than_an_int_of_bytes);
}

TEST(RunRanks, NeedsARank) {
  EXPECT_THROW(run_ranks(0, [](Communicator&) {}), UsageError);
}

/// Rank 2 comes only when all others have their error, which therefore was not its arrival.
TEST(RunRanks, ALateRankIsNamedByEverySurvivor) {
  std::atomic<int> named{0};
  const auto f = [&](Communicator& comm) {
    Array x(DType::f32, 100'000);
    if (comm.rank() == 2) {
      while (named < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_THROW(comm.all_reduce(x.buffer(), Reduce::sum, "grad")->wait(), CommError);
      return;
    }
    try {
      comm.all_reduce(x.buffer(), Reduce::sum, "grad")->wait();
      ADD_FAILURE() << "no error";
    } catch (const CommError& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 2 is late"));
      EXPECT_THAT(e.what(), HasSubstr("\"grad\""));
    }
    ++named;
  };
  for (const bool checked : {true, false}) {
    named = 0;
    run_ranks(4, f, {.timeout = Seconds{0.2}, .checked = checked});
  }
}

}  // namespace
}  // namespace linerate::comm
