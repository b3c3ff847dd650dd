// What every back end must do when a run ends in an error, and what must not end it. Each case is
// called on every rank of a run of its own, since none works on after an error.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/communicator_suite.hpp"
#include "linerate/comm/communicator.hpp"

namespace linerate::comm::suite {

/// How long ranks wait: the timeout of a case. The timeout of kShort is `short_timeout`.
inline constexpr Duration kPatient{60}, kQuick{10}, kShort{0};
/// A back end whose signs of life take longer sets another.
inline std::chrono::milliseconds short_timeout{900};

inline std::vector<Case>& endings() {
  static std::vector<Case> all;
  return all;
}
#define ENDING(name, timeout) LISTED_CASE(endings, name, timeout, false)

// ---- abort ----

/// Rank 1 ends the run from another thread, while the others are inside a collective that it never
/// submits: all hear who and why, in what they wait for and in what they submit afterwards.
ENDING(abort_ends_the_run_everywhere, kPatient) {
  const auto group = comm.split(0, 0, "group");
  const WorkPtr arrived = comm.barrier("all have the group");
  Array x = filled(DType::f32, 300'007, comm.rank());
  const auto reduce = [&] { comm.all_reduce(x.buffer(), Reduce::sum, "grad")->wait(); };
  const std::string want = "rank 1 ended the run: weights.bin is truncated";
  if (comm.rank() == 1) {
    arrived->wait();
    std::thread([&] { comm.abort("weights.bin is truncated"); }).join();
  } else {
    expect_said(error_of(reduce), {want, "all-reduce"});
    static_cast<void>(error_of([&] { arrived->wait(); }));  // rank 1 may have been the quicker one
  }
  expect_said(error_of(reduce), {want});
  expect_said(error_of([&] { group->barrier("gate")->wait(); }), {want});
}

/// Of two reasons one counts, the same for all.
ENDING(the_first_abort_counts, kPatient) {
  if (comm.rank() == 0) {
    comm.abort("first");
    comm.abort("second");
  }
  expect_said(error_of([&] {
                while (true) comm.barrier("gate")->wait();
              }),
              {"rank 0 ended the run: first"});
}

// ---- handles ----

/// Nobody holds the Work: it is done all the same when the statement is.
ENDING(a_dropped_handle_waits, kPatient) {
  Array x = filled(DType::f32, 300'007, comm.rank());
  std::ignore = comm.all_reduce(x.buffer(), Reduce::sum, "grad");
  expect_reduced(x, comm.size());
}

/// Rank 1 throws while its collective is under way, which frees the array. The others hear why; the
/// array is not used after that (sanitizers and tools/memcheck see it).
ENDING(an_exception_may_pass_a_pending_work, kPatient) {
  const std::string want =
      "rank 1 ended the run: an exception was thrown while \"grad\" was pending";
  if (comm.rank() == 1) {
    try {
      const auto x = std::make_unique<Array>(filled(DType::f32, 1'000'003, 1));
      const WorkPtr work = comm.all_reduce(x->buffer(), Reduce::sum, "grad");
      throw InputError("weights.bin", "truncated");
    } catch (const InputError&) {
    }
  } else {
    // One rank comes late, so that nothing is complete before the exception; in between, some move.
    if (comm.rank() == (comm.size() > 2 ? 2 : 0))
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    Array x = filled(DType::f32, 1'000'003, comm.rank());
    expect_said(error_of([&] { comm.all_reduce(x.buffer(), Reduce::sum, "grad")->wait(); }),
                {want});
  }
  expect_said(error_of([&] { comm.barrier("after it")->wait(); }), {want});
}

ENDING(an_exception_may_pass_a_communicator, kPatient) {
  Array x = filled(DType::f32, 1'000'003, comm.rank());
  WorkPtr work;
  try {
    const auto group = comm.split(0, 0, "group");
    work = group->all_reduce(x.buffer(), Reduce::sum, "grad");
    if (comm.rank() == 1) throw InputError("weights.bin", "truncated");
    group->barrier("never complete")->wait();
    ADD_FAILURE() << "no error";
  } catch (const InputError&) {
  } catch (const CommError& e) {
    EXPECT_THAT(e.what(), ::testing::AnyOf(::testing::HasSubstr("rank 1 ended the run"),
                                           ::testing::HasSubstr("rank 1 left")));
  }
  EXPECT_TRUE(!work || work->done());  // null: the run ended while it was being split
}

/// What on_done runs is on the progress thread, which cannot wait for itself. Rank 0 shows it: the
/// others come late, so that its action is there before "first" is done. Where it is not, however
/// late they come, the action runs in on_done itself, and rank 0 ends the run in its place.
ENDING(a_handle_dropped_by_an_action_ends_the_run, kPatient) {
  const std::string dropped = "\"later\" was dropped";
  Array x = filled(DType::f32, 5, comm.rank()), y = x;
  auto later = std::make_shared<WorkPtr>();
  {
    if (comm.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const WorkPtr first = comm.all_reduce(x.buffer(), Reduce::sum, "first");
    std::atomic<bool> set{false}, too_late{false};
    const auto drop = [&, later, caller = std::this_thread::get_id()] {
      if (std::this_thread::get_id() == caller) {
        too_late = true;
        return;
      }
      while (!set) std::this_thread::yield();
      later->reset();
    };
    if (comm.rank() == 0) first->on_done(drop);
    *later = comm.all_reduce(y.buffer(), Reduce::sum, "later");
    set = true;
    if (too_late) comm.abort(dropped);
    error_of([&] { comm.barrier("both done")->wait(); });
  }
  expect_said(error_of([&] { comm.barrier("after it")->wait(); }), {"ended the run: " + dropped});
}

// ---- mismatch, unchecked ----

/// Memory with a margin that nobody may touch.
class Guarded {
 public:
  explicit Guarded(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), all_(2 * kMargin + bytes_, kCanary) {}
  ~Guarded() {
    const auto intact = [](std::byte b) { return b == kCanary; };
    EXPECT_TRUE(std::all_of(all_.begin(), all_.begin() + kMargin, intact)) << "in front";
    EXPECT_TRUE(std::all_of(all_.end() - kMargin, all_.end(), intact)) << "behind";
  }
  Buffer of(std::int64_t count, DType dtype = DType::f32) {
    return {all_.data() + kMargin, {count}, dtype};
  }

 private:
  static constexpr std::ptrdiff_t kMargin = 4 << 20;
  static constexpr std::byte kCanary{0xEE};
  std::size_t bytes_;
  std::vector<std::byte> all_;
};

constexpr std::int64_t kLarge = 1'000'000;

/// What a rank runs in memory of just the size that it needs.
struct Operation {
  std::int64_t bytes;
  std::function<WorkPtr(Guarded&)> run;
};

inline Operation reduction(Communicator& comm, std::int64_t count, DType dtype = DType::f32,
                           Reduce op = Reduce::sum) {
  return {4 * count,
          [=, &comm](Guarded& m) { return comm.all_reduce(m.of(count, dtype), op, "x"); }};
}
inline Operation broadcast(Communicator& comm, std::int64_t count, int root = 0) {
  return {4 * count, [=, &comm](Guarded& m) { return comm.broadcast(m.of(count), root, "x"); }};
}

/// The last rank runs `odd`, the others `usual`. All ranks fail, at the latest in what they run
/// next, long before the timeout, and read what two of them run: operation, count, type, name and
/// number; no byte lands outside.
inline void expect_different_operations(Communicator& comm, const Operation& usual,
                                        const Operation& odd) {
  const Operation& own = comm.rank() == comm.size() - 1 ? odd : usual;
  Guarded memory(own.bytes);
  std::string said = error_of([&] { own.run(memory)->wait(); });
  if (said.empty()) said = error_of([&] { comm.barrier("next")->wait(); });
  expect_said(said, {"the ranks run different operations here"});
  EXPECT_THAT(said,
              ::testing::ContainsRegex(
                  "rank [0-9]+ r[au]ns? [a-z-]+ .*\"(x|next)\" \\(number [0-9]+\\), rank [0-9]+ "
                  "r[au]ns? [a-z-]+ .*\"(x|next)\" \\(number [0-9]+\\)"));
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("timeout")));
}

ENDING(unchecked_other_size, kQuick) {
  expect_different_operations(comm, broadcast(comm, 50'000), broadcast(comm, 2));
}
ENDING(unchecked_other_size_large, kQuick) {
  expect_different_operations(comm, reduction(comm, 2'000'000), reduction(comm, 1'000'000));
}
ENDING(unchecked_nothing_against_something, kQuick) {
  expect_different_operations(comm, reduction(comm, 5), reduction(comm, 0));
}
ENDING(unchecked_broadcast_against_barrier, kQuick) {
  expect_different_operations(comm, broadcast(comm, 50'000),
                              {0, [&](Guarded&) { return comm.barrier("x"); }});
}
ENDING(unchecked_all_reduce_against_reduce_scatter, kQuick) {
  const std::int64_t block = 600'000, count = block * comm.size();
  const auto scatter = [&](Guarded& m) {
    return comm.reduce_scatter(m.of(count), m.of(block), Reduce::sum, "x");
  };
  expect_different_operations(comm, reduction(comm, count), {4 * count, scatter});
}
ENDING(unchecked_other_type, kQuick) {
  expect_different_operations(comm, reduction(comm, 10), reduction(comm, 10, DType::i32));
}
ENDING(unchecked_other_type_large, kQuick) {
  expect_different_operations(comm, reduction(comm, kLarge), reduction(comm, kLarge, DType::i32));
}
ENDING(unchecked_other_reduction, kQuick) {
  expect_different_operations(comm, reduction(comm, 1),
                              reduction(comm, 1, DType::f32, Reduce::max));
}
/// With two ranks each sends to the other and nobody waits: the next collective shows it.
ENDING(unchecked_other_root, kQuick) {
  expect_different_operations(comm, broadcast(comm, 10), broadcast(comm, 10, comm.size() - 1));
}
ENDING(unchecked_other_root_large, kQuick) {
  expect_different_operations(comm, broadcast(comm, kLarge),
                              broadcast(comm, kLarge, comm.size() - 1));
}
ENDING(unchecked_other_counts, kQuick) {
  if (comm.size() < 2) return;
  const auto gathering = [&](std::int64_t of_first) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), 3000);
    counts.front() = of_first;
    const std::int64_t total = 3000 * (comm.size() - 1) + of_first;
    const auto gather = [=, &comm](Guarded& m) {
      Array own(DType::f32, 3000);
      const WorkPtr work = comm.all_gather_v(own.view(), m.of(total), counts, "x");
      work->wait();
      return work;
    };
    return Operation{4 * total, gather};
  };
  expect_different_operations(comm, gathering(3000), gathering(1));
}
ENDING(unchecked_all_to_all_against_all_gather, kQuick) {
  const std::int64_t count = 70'000, all = count * comm.size();
  const auto exchange = [&](Guarded& m) {
    const Buffer in = m.of(all);
    const Buffer out{static_cast<std::byte*>(in.data) + 4 * all, in.count, in.dtype};
    return comm.all_to_all(in, out, "x");
  };
  const auto gather = [&](Guarded& m) { return comm.all_gather(m.of(count), m.of(all), "x"); };
  expect_different_operations(comm, {8 * all, exchange}, {4 * all, gather});
}
/// One of them compares, the others send payload.
ENDING(checked_against_unchecked, kQuick) {
  comm.set_checked(comm.rank() == comm.size() - 1);
  expect_different_operations(comm, reduction(comm, 1000), reduction(comm, 1000));
}

// ---- busy ----

/// Rank 0 comes four timeouts late, and has said so: nobody is late, before it or after.
ENDING(a_busy_rank_is_waited_for, kShort) {
  for (const bool in_group : {false, true}) {
    const auto group = comm.split(0, -comm.rank(), "reversed");
    if (comm.rank() == 0) {
      const Busy busy = comm.busy("writing a checkpoint");
      std::this_thread::sleep_for(4 * short_timeout);
    }
    expect_sum(in_group ? *group : comm, 70'001, "after the checkpoint");
  }
}

/// The inner guard is bounded and shorter; both overlap.
ENDING(the_longest_guard_counts, kShort) {
  if (comm.rank() == 0) {
    Busy outer;
    {
      const Busy inner = comm.busy("hashing", Duration{0.1});
      outer = comm.busy("writing");
    }
    std::this_thread::sleep_for(3 * short_timeout);
  }
  expect_sum(comm, 5, "after both");
}

/// Rank 0 asked for less than it takes: it is late, and what it does is said.
ENDING(a_guard_ends_with_its_bound, kShort) {
  const Busy busy = comm.rank() == 0 ? comm.busy("writing a checkpoint", Duration{0.1}) : Busy();
  if (comm.rank() == 0) std::this_thread::sleep_for(3 * short_timeout);
  const std::string said = error_of([&] { comm.barrier("gate")->wait(); });
  expect_said(said, {"rank 0 is late",
                     "rank 0 is busy for longer than it asked for: writing a checkpoint"});
  if (comm.rank() != 0) std::this_thread::sleep_for(3 * short_timeout);  // its test ends too
}

/// Rank 2 waits for rank 1, which waits elsewhere for rank 0, which is busy for many timeouts.
ENDING(who_waits_for_a_busy_rank_is_not_late, kShort) {
  if (comm.size() < 3) return;
  const auto first = comm.split(comm.rank() < 2 ? 0 : kNoGroup, 0, "first");
  const auto second = comm.split(comm.rank() > 0 ? 0 : kNoGroup, 0, "second");
  if (comm.rank() == 0) {
    const Busy busy = comm.busy("writing a checkpoint");
    std::this_thread::sleep_for(6 * short_timeout);
  }
  if (first) expect_sum(*first, 70'001, "in first");
  if (second) expect_sum(*second, 70'001, "in second");
}

ENDING(a_bound_of_nothing_is_refused, kPatient) {
  EXPECT_THROW(static_cast<void>(comm.busy("writing", Duration{0})), UsageError);
  EXPECT_THROW(static_cast<void>(comm.busy("writing", Duration{-1})), UsageError);
  comm.barrier("still there")->wait();
}

// What every back end must do under a link: set_link before its ranks come together.

class UnderLink {
 public:
  explicit UnderLink(std::optional<BytesPerSecond> rate) { set_link(rate); }
  ~UnderLink() { set_link(std::nullopt); }
  UnderLink(const UnderLink&) = delete;
  UnderLink& operator=(const UnderLink&) = delete;
};

/// Slow enough that a rank waits for the link and for nothing else, and fast enough for all cases.
inline constexpr BytesPerSecond kSlowLink{12.5e6}, kFastLink{1.25e9};

/// What a rank sends, in whichever of these communicators, has left over its one link before all is
/// done. What an idle link had saved comes first.
inline void expect_no_faster_than_the_link(const std::vector<Communicator*>& communicators) {
  constexpr double kSaved_s = 0.5e-3;
  std::vector<Array> arrays;
  double before = 0, sent = 0;
  for (Communicator* one : communicators) {
    arrays.push_back(filled(DType::f32, 300'007, one->rank()));
    before += static_cast<double>(one->traffic().sent.value);
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    works.push_back(communicators[i]->all_reduce(arrays[i].buffer(), Reduce::sum, "x"));
  for (const WorkPtr& work : works) work->wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    expect_reduced(arrays[i], communicators[i]->size());
    sent += static_cast<double>(communicators[i]->traffic().sent.value);
  }
  EXPECT_GE(took.count(), (sent - before) / link_rate()->value - kSaved_s);
}

/// A rank's groups share its link.
inline void is_no_faster_than_its_link(Communicator& comm) {
  EXPECT_FALSE(comm.reads_pieces());
  const auto reversed = comm.split(0, -comm.rank(), "reversed"), same = comm.split(0, 0, "same");
  expect_no_faster_than_the_link({reversed.get(), same.get()});
}

}  // namespace linerate::comm::suite
