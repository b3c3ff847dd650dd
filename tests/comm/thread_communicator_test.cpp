// The conformance suite on ranks that are threads, and what only threads can show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/back_end_suite.hpp"
#include "linerate/comm/thread/run_ranks.hpp"

namespace linerate::comm {

std::vector<int> numbers_of_ranks(std::vector<int> threads) { return threads; }
void on_ranks(int ranks, void (*run)(Communicator&), const CommunicatorOptions& options) {
  run_ranks(ranks, run, options);
}

namespace {

using suite::Array;
using suite::error_of;
using suite::expect_said;
using ::testing::ThrowsMessage;

TEST(RunRanks, RethrowsTheFirstErrorAndAPeerLearnsWhoFailed) {
  std::string seen;
  const auto run = [&] {
    run_ranks(2, [&](Communicator& comm) {
      if (comm.rank() == 1) throw InputError("weights.bin", "truncated");
      seen = error_of([&] { comm.barrier("gate")->wait(); });
    });
  };
  EXPECT_THAT(run, ThrowsMessage<InputError>("weights.bin: truncated"));
  expect_said(seen, {"rank 1 failed: weights.bin: truncated", "barrier \"gate\""});
}

TEST(RunRanks, ARankThatReturnsEarlyIsNamed) {
  expect_said(error_of([] {
                run_ranks(3, [](Communicator& comm) {
                  if (comm.rank() != 2) comm.barrier("gate")->wait();
                });
              }),
              {"rank 2 left"});
}

TEST(ThreadLarge, MoreThanAnIntOfBytes) {
  if (suite::available_memory() < 4 * suite::kHuge) GTEST_SKIP() << "needs 8.6 GB of free memory";
  run_ranks(2, suite::more_than_an_int_of_bytes);
}

TEST(RunRanks, NeedsARank) {
  EXPECT_THROW(run_ranks(0, [](Communicator&) {}), UsageError);
}

/// Rank 2 is in no group, and comes to the next collective of all long after the timeout of those
/// that wait in the group: it is not its fault. Rank 3 is in the group and does not come.
TEST(Groups, OnlyAMemberIsLate) {
  std::atomic<int> named{0};
  const auto f = [&](Communicator& comm) {
    const auto group = comm.split(comm.rank() == 2 ? kNoGroup : 0, -comm.rank(), "workers");
    if (comm.rank() >= 2) {
      while (named < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    Array x(DType::f32, 100'000);
    expect_said(error_of([&] { group->all_reduce(x.buffer(), Reduce::sum, "grad")->wait(); }),
                {"rank 3 is late", "in group \"workers\""});
    ++named;
  };
  for (const bool checked : {true, false}) {
    named = 0;
    run_ranks(4, f, {.timeout = Duration{0.2}, .checked = checked});
  }
}

/// Ranks outside of the group leave the job while it works.
TEST(Groups, RanksOutsideMayLeave) {
  std::atomic<int> outside{0};
  run_ranks(4, [&](Communicator& comm) {
    const auto group = comm.split(comm.rank() < 2 ? 0 : kNoGroup, 0, "stay");
    if (!group) {
      ++outside;
      return;
    }
    while (outside < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int k = 0; k < 20; ++k) suite::expect_sum(*group, 70'001, "x");
  });
}

TEST(Groups, AMemberThatLeavesIsNamed) {
  std::string said;
  const auto f = [&](Communicator& comm) {
    const auto group = comm.split(comm.rank() % 2, 0, "parity");
    if (comm.rank() == 3) return;
    if (comm.rank() % 2 == 0) return suite::expect_sum(*group, 5, "well");
    said = error_of([&] { group->barrier("gate")->wait(); });
  };
  static_cast<void>(error_of([&] { run_ranks(4, f); }));  // the others may hear of it, too
  expect_said(said,
              {"rank 1: barrier \"gate\" (number 0) in group \"parity\": rank 3 left the job"});
}

/// Rank 0 waits for rank 1, which waits in another group for rank 2, which does not come: it is
/// rank 2 that is named, though rank 0 has waited longer than the timeout.
TEST(Groups, TheRankAtTheEndOfTheChainIsNamed) {
  std::atomic<int> named{0};
  const auto f = [&](Communicator& comm) {
    const auto first = comm.split(comm.rank() > 0 ? 0 : kNoGroup, 0, "first");
    const auto second = comm.split(comm.rank() < 2 ? 0 : kNoGroup, 0, "second");
    if (comm.rank() == 2) {
      while (named < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    WorkPtr work;
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      work = first->barrier("in first");
    }
    expect_said(error_of([&] {
                  const WorkPtr later = second->barrier("in second");
                  if (work) work->wait();
                  later->wait();
                }),
                {"rank 2 is late"});
    ++named;
  };
  run_ranks(3, f, {.timeout = Duration{0.4}, .checked = false});
}

/// Two groups of the same ranks in two orders: checked mode sees it at once, unchecked mode in the
/// timeout.
TEST(Groups, TwoOrdersAreAnError) {
  for (const bool checked : {true, false}) {
    const auto f = [&](Communicator& comm) {
      const auto rows = comm.split(0, 0, "rows"), columns = comm.split(0, 0, "columns");
      Array x(DType::f32, 5);
      const bool swapped = comm.rank() == 1;
      const WorkPtr first = (swapped ? columns : rows)->all_reduce(x.buffer(), Reduce::sum, "x");
      expect_said(error_of([&] { first->wait(); }),
                  {"different orders", checked ? "in group \"columns\"" : "in group"});
    };
    run_ranks(3, f, {.timeout = Duration{checked ? 60 : 0.2}, .checked = checked});
  }
}

/// Three ranks in a circle, each with the neighbour's group first: nobody is inside the collective
/// that another one waits in.
TEST(Groups, ACircleEndsInTheTimeout) {
  const auto f = [&](Communicator& comm) {
    std::array<std::unique_ptr<Communicator>, 3> pairs;  // pair k: ranks k and k + 1
    for (int k = 0; k < 3; ++k) {
      const bool in = comm.rank() == k || comm.rank() == (k + 1) % 3;
      pairs[static_cast<std::size_t>(k)] = comm.split(in ? 0 : kNoGroup, 0, "pair");
    }
    const auto own = static_cast<std::size_t>(comm.rank());
    const WorkPtr first = pairs[own]->barrier("own first");
    const WorkPtr second = pairs[(own + 2) % 3]->barrier("then the other");
    for (const WorkPtr& work : {first, second})
      expect_said(error_of([&] { work->wait(); }), {"in different orders"});
  };
  run_ranks(3, f, {.timeout = Duration{0.2}, .checked = false});
}

/// Groups that outlive run_ranks keep their ranks in the job; the last one to go leaves it.
TEST(Groups, MayOutliveTheRun) {
  std::vector<std::unique_ptr<Communicator>> kept(2);
  run_ranks(2, [&](Communicator& comm) {
    kept[static_cast<std::size_t>(comm.rank())] = comm.split(0, 0, "kept");
  });
  const WorkPtr work = kept[0]->barrier("after the run"), other = kept[1]->barrier("after the run");
  EXPECT_NO_THROW(work->wait());
  EXPECT_NO_THROW(other->wait());
  kept[1].reset();
  EXPECT_THROW(kept[0]->barrier("alone")->wait(), CommError);
}

}  // namespace
}  // namespace linerate::comm
