// What every back end must do when a run ends in an error, and what must not end it. Each case is
// called on every rank of a run of its own, since none works on after an error.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "comm/communicator_suite.hpp"

namespace linerate::comm::suite {

/// What the collective fails with; "" where it does not.
inline std::string error_of(const std::function<void()>& collective) {
  try {
    collective();
  } catch (const CommError& e) {
    return e.what();
  }
  return {};
}

// ---- abort ----

/// Rank 1 ends the run from another thread, while the others are inside a collective that it never
/// submits: all hear who and why, in what they wait for and in what they submit afterwards.
inline void abort_ends_the_run_everywhere(Communicator& comm) {
  const auto group = comm.split(0, 0, "group");
  Array x = filled(DType::f32, 300'007, comm.rank());
  const auto reduce = [&] { comm.all_reduce(x.buffer(), Reduce::sum, "grad")->wait(); };
  const std::string want = "rank 1 ended the run: weights.bin is truncated";
  if (comm.rank() == 1) {
    std::thread([&] { comm.abort("weights.bin is truncated"); }).join();
  } else {
    EXPECT_THAT(error_of(reduce),
                ::testing::AllOf(::testing::HasSubstr(want), ::testing::HasSubstr("all-reduce")));
  }
  EXPECT_THAT(error_of(reduce), ::testing::HasSubstr(want));
  EXPECT_THAT(error_of([&] { group->barrier("gate")->wait(); }), ::testing::HasSubstr(want));
}

/// Of two reasons one counts, the same for all.
inline void the_first_abort_counts(Communicator& comm) {
  comm.barrier("all here")->wait();
  if (comm.rank() == 0) {
    comm.abort("first");
    comm.abort("second");
  }
  EXPECT_THAT(error_of([&] {
                while (true) comm.barrier("gate")->wait();
              }),
              ::testing::HasSubstr("rank 0 ended the run: first"));
}

// ---- busy ----

inline constexpr std::chrono::milliseconds kShort{400};  // the timeout of these runs

/// Rank 0 comes four timeouts late, and has said so: nobody is late, before it or after.
inline void a_busy_rank_is_waited_for(Communicator& comm) {
  for (const bool in_group : {false, true}) {
    const auto group = comm.split(0, -comm.rank(), "reversed");
    if (comm.rank() == 0) {
      const Busy busy = comm.busy("writing a checkpoint");
      std::this_thread::sleep_for(4 * kShort);
    }
    expect_sum(in_group ? *group : comm, 70'001, "after the checkpoint");
  }
}

/// The inner guard is bounded and shorter; both overlap.
inline void the_longest_guard_counts(Communicator& comm) {
  if (comm.rank() == 0) {
    Busy outer;
    {
      const Busy inner = comm.busy("hashing", Seconds{0.1});
      outer = comm.busy("writing");
    }
    std::this_thread::sleep_for(3 * kShort);
  }
  expect_sum(comm, 5, "after both");
}

/// Rank 0 asked for less than it takes: it is late, and what it does is said.
inline void a_guard_ends_with_its_bound(Communicator& comm) {
  const Busy busy = comm.rank() == 0 ? comm.busy("writing a checkpoint", Seconds{0.1}) : Busy();
  if (comm.rank() == 0) std::this_thread::sleep_for(3 * kShort);
  const std::string said = error_of([&] { comm.barrier("gate")->wait(); });
  EXPECT_THAT(said, ::testing::HasSubstr("rank 0 is late"));
  EXPECT_THAT(said, ::testing::HasSubstr(
                        "rank 0 is busy for longer than it asked for: writing a checkpoint"));
  if (comm.rank() != 0) std::this_thread::sleep_for(3 * kShort);  // its test ends too
}

/// Rank 2 waits for rank 1, which waits elsewhere for rank 0, which is busy for many timeouts.
inline void who_waits_for_a_busy_rank_is_not_late(Communicator& comm) {
  if (comm.size() < 3) return;
  const auto first = comm.split(comm.rank() < 2 ? 0 : kNoGroup, 0, "first");
  const auto second = comm.split(comm.rank() > 0 ? 0 : kNoGroup, 0, "second");
  if (comm.rank() == 0) {
    const Busy busy = comm.busy("writing a checkpoint");
    std::this_thread::sleep_for(6 * kShort);
  }
  if (first) expect_sum(*first, 70'001, "in first");
  if (second) expect_sum(*second, 70'001, "in second");
}

inline void a_bound_of_nothing_is_refused(Communicator& comm) {
  EXPECT_THROW(comm.busy("writing", Seconds{0}), UsageError);
  EXPECT_THROW(comm.busy("writing", Seconds{-1}), UsageError);
  comm.barrier("still there")->wait();
}

struct Ending {
  const char* name;
  void (*run)(Communicator&);
  Seconds timeout{60};
  bool checked = false;
};
inline void PrintTo(const Ending& c, std::ostream* out) { *out << c.name; }

inline constexpr Seconds kShortSeconds{std::chrono::duration<double>(kShort).count()};

inline constexpr std::array kEndings = {
    Ending{"AbortEndsTheRunEverywhere", abort_ends_the_run_everywhere},
    Ending{"TheFirstAbortCounts", the_first_abort_counts},
    Ending{"ABusyRankIsWaitedFor", a_busy_rank_is_waited_for, kShortSeconds},
    Ending{"TheLongestGuardCounts", the_longest_guard_counts, kShortSeconds},
    Ending{"AGuardEndsWithItsBound", a_guard_ends_with_its_bound, kShortSeconds},
    Ending{"WhoWaitsForABusyRankIsNotLate", who_waits_for_a_busy_rank_is_not_late, kShortSeconds},
    Ending{"ABoundOfNothingIsRefused", a_bound_of_nothing_is_refused},
};

}  // namespace linerate::comm::suite
