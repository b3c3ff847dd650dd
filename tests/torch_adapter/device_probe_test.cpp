// What is measured of codecs and K-FAC where tensors lie, on the CPU by the code for devices.
#include "linerate/torch_adapter/device_probe.hpp"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "torch_adapter/host_reads.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::int64_t> kFewElements = {1 << 10, 1 << 12};

/// A device that takes 1 us between two marks, and a host that takes what a test says whenever its
/// clock is read.
class TickingClock final : public exec::StreamClock {
 public:
  TickingClock(std::int64_t host_tick_ns, bool is_dry) : tick_(host_tick_ns), is_dry_(is_dry) {}

  void set(exec::MarkId mark, exec::StreamId) override { set_ns_[mark] = device_ += 1000; }
  bool is_over(exec::MarkId) override { return is_dry_; }
  void wait_for(exec::MarkId) override {}
  double ns_between(exec::MarkId first, exec::MarkId then) override {
    return set_ns_.at(then) - set_ns_.at(first);
  }
  std::int64_t host_ns() override { return host_ += tick_; }

 private:
  std::int64_t tick_, host_ = 0;
  bool is_dry_;
  double device_ = 0;
  std::map<exec::MarkId, double> set_ns_;
};

TimedQueue ticking_queue(std::int64_t host_tick_ns, bool is_dry) {
  return {c10::kCPU, exec::QueueTimer(std::make_shared<TickingClock>(host_tick_ns, is_dry), [] {})};
}

/// Of every compressor, on two ranks: costs of both sizes, the same on each rank; and no operator
/// reads a value. sidco copies some to the host.
TEST_ON(TensorCodecProbe, TimesEveryCompressorWithoutAWait, comm::run_ranks, 2) {
  at::set_num_threads(1);
  TimedQueue queue(c10::kCPU);
  std::vector<std::string> seconds;
  for (const doc::Component& component : calibrate::all_compressors()) {
    const HostReads reads;
    const auto [found, notes] = probe_tensor_codec(communicator, queue, component, kFewElements);
    EXPECT_EQ(reads.count(), 0) << component.name;
    EXPECT_THAT(notes, IsEmpty()) << component.name;
    EXPECT_EQ(found.name, component.name);
    ASSERT_EQ(found.encode.size(), kFewElements.size()) << found.name;
    ASSERT_EQ(found.decode.size(), kFewElements.size()) << found.name;
    for (std::size_t i = 0; i < kFewElements.size(); ++i) {
      EXPECT_EQ(found.encode[i].bytes, 4.0 * static_cast<double>(kFewElements[i]));
      EXPECT_GT(found.encode[i].seconds, 1e-6) << found.name;
      EXPECT_GT(found.decode[i].seconds, 1e-7) << found.name;
      seconds.push_back(std::to_string(std::bit_cast<std::uint64_t>(found.encode[i].seconds)));
    }
  }
  comm::require_same(communicator, "seconds", seconds);
}

/// Marks are 1 us apart, and one more lies before the last call of each kind, which is of eight
/// tensors: encoding each round, decoding it, and what is kept take 2 us together.
TEST_ON(TensorCodecProbe, AddsUpRoundsAndWhatIsKept, comm::run_ranks, 1) {
  TimedQueue queue = ticking_queue(10, false);
  const auto times_of = [&](const char* text) {
    return probe_tensor_codec(communicator, queue, calibrate::parse_compressor(text), {1 << 12});
  };
  const TensorCodecTimes one = times_of("fp16"), two = times_of("powersgd(rank=1)");
  EXPECT_NEAR(one.samples.encode.at(0).seconds, 2 * 2e-6 / 8, 1e-12);
  EXPECT_NEAR(one.samples.decode.at(0).seconds, 2e-6 / 8, 1e-12);
  EXPECT_NEAR(two.samples.encode.at(0).seconds, 3 * 2e-6 / 8, 1e-12);
  EXPECT_NEAR(two.samples.decode.at(0).seconds, 2 * 2e-6 / 8, 1e-12);
  EXPECT_THAT(one.notes, IsEmpty());
}

TEST_ON(TensorCodecProbe, SaysWhereTheHostIsTheSlowerOneOrWaits, comm::run_ranks, 1) {
  const auto notes = [&](TimedQueue queue) {
    return probe_tensor_codec(communicator, queue, {"fp16", {}}, kFewElements).notes;
  };
  EXPECT_THAT(notes(ticking_queue(8'000'000, false)),
              ElementsAre(HasSubstr("fp16: for a tensor of 16.4 kB the host takes 3.00 ms to "
                                    "enqueue what cpu does in")));
  EXPECT_THAT(notes(ticking_queue(10, true)),
              ElementsAre(HasSubstr("fp16: the host waits for cpu during coding")));
}

TEST_ON(BatchProbe, InvertsOneByOneAndTogether, comm::run_ranks, 2) {
  at::set_num_threads(1);
  TimedQueue queue(c10::kCPU);
  const std::array<std::int64_t, 2> dims = {48, 8};
  const HostReads reads;
  const std::vector<doc::BatchSample> samples = measure_batches(queue, communicator, dims, 4);
  EXPECT_EQ(reads.count(), 0);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].dim, 8);
  EXPECT_EQ(samples[1].dim, 48);
  for (const doc::BatchSample& s : samples) {
    EXPECT_EQ(s.count, 4);
    EXPECT_GT(s.together_s, 0);
    EXPECT_GT(s.one_by_one_s, 0);
  }
}

/// The same work as on processors, by code that reads nothing.
TEST_ON(SecondOrderProbe, TimesWhatAStepEnqueues, comm::run_ranks, 1) {
  at::set_num_threads(1);
  TimedQueue queue(c10::kCPU);
  const std::array<std::int64_t, 2> dims = {64, 16};
  std::vector<std::string> notes;
  const HostReads reads;
  const doc::SecondOrderSamples found = measure_second_order_on(queue, communicator, dims, notes);
  EXPECT_EQ(reads.count(), 0);
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_EQ(found.factors.size(), 2 * found.directions.size());
  ASSERT_EQ(found.directions.size(), 11u);
  for (const auto* works : {&found.factors, &found.directions})
    for (const doc::SecondOrderWork& work : *works) {
      EXPECT_GT(work.seconds, 1e-6);
      EXPECT_GT(work.flops, 0);
    }
  ASSERT_EQ(found.inverses.size(), 2u);
  EXPECT_EQ(found.inverses[0].dim, 64);
  EXPECT_EQ(found.inverses[1].dim, 16);
  for (const doc::InverseSample& inverse : found.inverses) EXPECT_GT(inverse.seconds, 0);
  EXPECT_EQ(found.batches.size(), 2u);
}

TEST(SlowHost, IsCountedByKindOfWork) {
  SlowHost host;
  const exec::CallTimes slow{.device_s = 1e-5, .host_s = 2e-5};
  const exec::CallTimes fast{.device_s = 3e-5, .host_s = 2e-5};
  host.see("inverses", fast);
  EXPECT_EQ(host.note("cuda"), "");
  host.see("inverses", slow);
  host.see("directions", fast);
  host.see("factors", {.device_s = 1, .host_s = 0, .was_queued = false});
  host.see("factors", slow);
  EXPECT_THAT(host.note("cuda"),
              HasSubstr("the host takes longer to enqueue than cuda to compute: 2 of 2 factors, 1 "
                        "of 2 inverses. "));
}

/// As `calibrate --device` calls it, with a device for each rank; no rank is left waiting.
template <typename Kind>
void expect_refused(const std::vector<std::string>& devices, const std::string& words) {
  comm::run_ranks(static_cast<int>(devices.size()), [&](Communicator& communicator) {
    const std::string& device = devices[to_index(communicator.rank())];
    EXPECT_THAT(thrown_by<Kind>([&] { measure_on_device(communicator, {.device = device}); }),
                HasSubstr(words));
  });
}

TEST(DeviceProbe, RefusesADeviceOnEveryRank) {
  expect_refused<UsageError>({"gpu", "gpu"}, "device \"gpu\": expected");
  expect_refused<DeviceError>({"meta", "meta", "meta"}, "device meta: expected");
  expect_refused<DeviceError>({"cpu", "meta", "cpu"}, "rank 1: device meta: expected");
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA))
    expect_refused<DeviceError>({"cuda:1", "cuda:1"}, "device cuda:1: expected");
}

}  // namespace
}  // namespace linerate::torch_adapter
