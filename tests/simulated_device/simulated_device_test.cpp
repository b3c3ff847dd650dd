// Each thing that the simulated device looks for is found when it is there, and not when it is not.
#include "simulated_device/simulated_device.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "linerate/comm/thread/run_ranks.hpp"
#include "simulated_device/order.hpp"
#include "simulated_device/stream_pools.hpp"
#include "simulated_device/streamed_backend.hpp"
#include "torch_adapter/group_over_communicator.hpp"

namespace linerate::simulated {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;

class SimulatedDevice : public testing::Test {
 protected:
  SimulatedDevice() {
    finish_all(0);
    forget(0);
  }

  const c10::impl::VirtualGuardImpl guard_{c10::kPrivateUse1};
  const c10::Device device_ = device(0);
  const c10::Stream first_ = guard_.getNewStream(device_), then_ = guard_.getNewStream(device_);

  void wait(c10::Stream waiting, c10::Stream other) const {
    c10::Event event(c10::kPrivateUse1);
    event.record(other);
    event.block(waiting);
  }
  template <typename Act>
  void in(const c10::Stream& stream, Act&& act) const {
    const c10::StreamGuard guard(stream);
    act();
  }
  /// `kind`: of the one conflict; empty if there is none.
  static void expect_conflict(const std::string& kind, const std::string& title = "") {
    if (kind.empty())
      EXPECT_THAT(asked_of(0).conflicts, IsEmpty()) << title;
    else
      EXPECT_THAT(asked_of(0).conflicts, ElementsAre(Key(HasSubstr(kind)))) << title;
  }
};

using SimulatedDeviceDeathTest = SimulatedDevice;
TEST_F(SimulatedDeviceDeathTest, KeepsItsMemoryFromTheHost) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor there = at::ones({4}, device_);
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(there.data_ptr())), "");
  EXPECT_DEATH(*static_cast<volatile float*>(there.data_ptr()) = 1, "");
}

/// Left out is the wait itself, or the device is told to leave it out.
TEST_F(SimulatedDevice, FindsEachKindOfMissingWait) {
  using Use = void (*)(const at::Tensor&);
  const Use writes = [](const at::Tensor& t) { t.fill_(2); };
  const Use reads = [](const at::Tensor& t) { static_cast<void>(t.add(1)); };
  const struct {
    Use first, then;
    const char* kind;
  } cases[] = {{writes, reads, "read after write"},
               {writes, writes, "write after write"},
               {reads, writes, "write after read"},
               {reads, reads, ""}};
  for (const auto& c : cases)
    for (const char* how : {"", "not asked for", "left out"}) {
      const at::Tensor tensor = at::zeros({8}, device_);
      finish_all(0);
      forget(0);
      if (how == std::string("left out")) leave_out_wait(0, 0);
      in(first_, [&] { c.first(tensor); });
      if (how != std::string("not asked for")) wait(then_, first_);
      in(then_, [&] { c.then(tensor); });
      expect_conflict(how == std::string() ? "" : c.kind, how);
    }
}

/// Rows of a view are apart from those between them.
TEST_F(SimulatedDevice, KnowsWhichBytesAViewHas) {
  const at::Tensor whole = at::zeros({6, 4}, device_);
  finish_all(0);
  in(first_, [&] { whole.slice(1, 0, 2).fill_(1); });
  in(then_, [&] { whole.slice(1, 2, 4).fill_(1); });
  expect_conflict("");
  in(then_, [&] { whole.select(1, 1).fill_(1); });
  expect_conflict("write after write");
}

TEST_F(SimulatedDevice, GivesFreedMemoryAtOnceToWhoAsksNext) {
  for (const bool waits : {true, false}) {
    at::Tensor old = at::zeros({300}, device_);
    const void* const place = old.const_data_ptr();
    wait(then_, current_stream(0));
    in(then_, [&] { static_cast<void>(old.add(1)); });
    if (waits) wait(current_stream(0), then_);
    old.reset();
    const at::Tensor fresh = at::ones({300}, device_);
    ASSERT_EQ(fresh.const_data_ptr(), place);
    expect_conflict(waits ? "" : "write after read");
  }
}

TEST_F(SimulatedDevice, CopiesToPinnedMemoryLate) {
  const at::Tensor there = at::full({4}, 7.0f, device_);
  at::Tensor here = at::empty({4}, at::TensorOptions().pinned_memory(true));
  ASSERT_TRUE(here.is_pinned());
  here.copy_(there, true);
  c10::Event over(c10::kPrivateUse1);
  over.record(current_stream(0));
  EXPECT_FALSE(here.eq(7).any().item<bool>());
  EXPECT_FALSE(over.query()) << "the first time it is too early";
  EXPECT_FALSE(here.eq(7).any().item<bool>());
  EXPECT_TRUE(over.query());
  EXPECT_TRUE(here.eq(7).all().item<bool>());
  EXPECT_THAT(asked_of(0).host_waits, IsEmpty());
}

TEST_F(SimulatedDevice, ReadsPinnedMemoryLate) {
  for (const bool changes : {false, true}) {
    at::Tensor here = at::ones({4}, at::TensorOptions().pinned_memory(true));
    const at::Tensor there = at::empty({4}, device_);
    there.copy_(here, true);
    if (changes) here.fill_(2);
    finish_all(0);
    expect_conflict(changes ? "pinned memory was changed" : "");
  }
}

TEST_F(SimulatedDevice, NotesWhatTheHostWaitsForAndInWhichTask) {
  const at::Tensor there = at::eye(3, device_), here = at::ones({3, 3});
  at::Tensor target = at::empty({3, 3}, device_);
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"copy of pageable memory", [&] { target.copy_(here, true); }},
      {"copy to pageable memory", [&] { static_cast<void>(there.cpu()); }},
      {"_local_scalar_dense", [&] { static_cast<void>(there[0][0].item()); }},
      {"nonzero", [&] { static_cast<void>(there.nonzero()); }},
      {"masked_select", [&] { static_cast<void>(there.masked_select(there.gt(0))); }},
      {"nonzero", [&] { static_cast<void>(there.index({there.gt(0)})); }},
      {"_index_put_impl_", [&] { target.index_put_({there.gt(0)}, there[0]); }},
      {"equal", [&] { static_cast<void>(there.equal(there)); }},
      {"_linalg_eigh.eigenvalues", [&] { static_cast<void>(at::linalg_eigh(there)); }},
      {"a whole stream", [&] { guard_.synchronizeStream(current_stream(0)); }},
      {"the whole device", [&] { guard_.synchronizeDevice(0); }},
      {"an event", [&] {
         c10::Event event(c10::kPrivateUse1);
         event.record(current_stream(0));
         event.synchronize();
       }}};
  for (const auto& [reason, act] : cases) {
    forget(0);
    act();
    EXPECT_THAT(asked_of(0).host_waits, UnorderedElementsAre(Pair(reason, 1))) << reason;
    forget(0);
    {
      RECORD_USER_SCOPE("encode bucket 2");
      act();
    }
    EXPECT_THAT(asked_of(0).host_waits,
                UnorderedElementsAre(Pair(std::string(reason) + " [encode bucket 2]", 1)));
  }
  forget(0);
  static_cast<void>(
      at::where(there.gt(0), there, 0.0).add(at::scalar_tensor(2)).index({there[0].to(at::kLong)}));
  EXPECT_THAT(asked_of(0).host_waits, IsEmpty()) << "numbers of the CPU are arguments";
}

TEST_F(SimulatedDevice, CountsLaunchesByStreamAndOperator) {
  std::vector<at::Tensor> many(130), others(130);
  for (at::Tensor& tensor : many) tensor = at::zeros({2}, device_);
  for (at::Tensor& tensor : others) tensor = at::ones({2}, device_);
  forget(0);
  in(first_, [&] {
    at::_foreach_copy_(many, others);
    static_cast<void>(many[0].view({1, 2}).t().slice(0, 0, 1).detach());
    many[0].mul_(2);
  });
  static_cast<void>(at::empty({5}, device_));
  const int stream = static_cast<int>(first_.id());
  EXPECT_THAT(asked_of(0).launches, UnorderedElementsAre(Pair(Pair(stream, "_foreach_copy_"), 3),
                                                         Pair(Pair(stream, "mul.out"), 1)));
  EXPECT_TRUE(many[129].eq(1).all().item<bool>());
}

TEST_F(SimulatedDevice, RefusesTensorsOfSeveralPlaces) {
  const at::Tensor there = at::ones({2}, device_);
  EXPECT_THROW(static_cast<void>(there.add(at::ones({2}))), c10::Error);
  EXPECT_THROW(static_cast<void>(there.add(at::ones({2}, device(1)))), c10::Error);
}

TEST_F(SimulatedDevice, HasNormalStreamsAndOnesOfHighPriority) {
  EXPECT_LE(first_.id(), kPool);
  EXPECT_GT(guard_.getStreamFromGlobalPool(device_, true).id(), kPool);
}

/// That it computes what the CPU does, simulated_device.registry checks.
TEST_F(SimulatedDevice, RunsBackwardPassesOnAutogradsThreadForIt) {
  for (const at::Device where : {at::Device(at::kCPU), device(1)}) {
    const at::Tensor x = at::ones({2}, where).requires_grad_();
    std::thread::id of_hook;
    x.register_hook([&](const at::Tensor&) { of_hook = std::this_thread::get_id(); });
    x.square().sum().backward();
    EXPECT_EQ(of_hook == std::this_thread::get_id(), where.is_cpu());
  }
}

/// A collective runs apart from the current stream, which is to wait for it.
TEST_F(SimulatedDevice, ExchangesInStreamsOfTheGroup) {
  for (const bool waits : {true, false}) {
    comm::run_ranks(2, [&](comm::Communicator& communicator) {
      const c10::Device mine = device(communicator.rank());
      const c10::DeviceGuard on_mine(mine);
      finish_all(mine.index());
      forget(mine.index());
      const torch_adapter::GroupOverCommunicator group("world", communicator, {}, &streamed);
      const auto found = ::c10d::resolve_process_group("world");
      std::vector<at::Tensor> arrays = {at::full({3}, communicator.rank() + 1.0f, mine)};
      const auto work = found->allreduce(arrays);
      if (waits) work->wait();
      const at::Tensor sum = arrays[0].add(0);
      EXPECT_TRUE(sum.cpu().eq(3).all().item<bool>());
      const Asked asked = asked_of(mine.index());
      EXPECT_THAT(asked.launches,
                  testing::Contains(Key(AllOf(
                      testing::Field(&std::pair<int, std::string>::first, testing::Ge(kFirstInner)),
                      testing::Field(&std::pair<int, std::string>::second, "all_reduce")))));
      if (waits)
        EXPECT_THAT(asked.conflicts, IsEmpty());
      else
        EXPECT_THAT(
            asked.conflicts,
            ElementsAre(Key(AllOf(HasSubstr("read after write"), HasSubstr("all_reduce")))));
    });
  }
}

TEST_F(SimulatedDevice, KnowsWhichWaitsChangeNothing) {
  static_cast<void>(at::zeros({1}, device_));
  wait(then_, current_stream(0));
  wait(then_, current_stream(0));
  const auto waits = asked_of(0).waits;
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_FALSE(waits[0].is_known);
  EXPECT_TRUE(waits[1].is_known);
}

/// It does not matter if a later one says the same before its stream, or one that waits for that,
/// does anything.
TEST_F(SimulatedDevice, KnowsWhatWasDoneWithoutAWait) {
  for (const bool is_said_later : {true, false}) {
    static_cast<void>(at::zeros({1}, device_));
    forget(0);
    leave_out_wait(0, 0);
    wait(first_, current_stream(0));
    if (is_said_later) wait(first_, current_stream(0));
    wait(then_, first_);
    EXPECT_FALSE(asked_of(0).worked_without);
    in(then_, [&] { static_cast<void>(at::zeros({1}, device_)); });
    EXPECT_EQ(asked_of(0).worked_without, !is_said_later);
  }
}

// ---- The order of uses of bytes, and who gets freed memory, without a device.

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
