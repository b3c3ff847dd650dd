// What is measured of codecs and K-FAC where tensors lie, on the CPU by the code for devices.
#include "linerate/torch_adapter/device_probe.hpp"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "torch_adapter/host_reads.hpp"

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

  void set(exec::MarkId mark, exec::StreamId) override {
    if (set_ns_.size() <= to_index(mark)) set_ns_.resize(to_index(mark) + 1);
    set_ns_[to_index(mark)] = device_ += 1000;
  }
  bool is_over(exec::MarkId) override { return is_dry_; }
  void wait_for(exec::MarkId) override {}
  double ns_between(exec::MarkId first, exec::MarkId then) override {
    return set_ns_[to_index(then)] - set_ns_[to_index(first)];
  }
  std::int64_t host_ns() override { return host_ += tick_; }

 private:
  std::int64_t tick_, host_ = 0;
  bool is_dry_;
  double device_ = 0;
  std::vector<double> set_ns_;
};

TimedQueue ticking_queue(std::int64_t host_tick_ns, bool is_dry) {
  return {c10::kCPU, exec::QueueTimer(std::make_shared<TickingClock>(host_tick_ns, is_dry), [] {})};
}

/// Of every compressor, on two ranks: costs of both sizes, the same on each rank; and no operator
/// reads a value. sidco copies some to the host.
TEST(TensorCodecProbe, TimesEveryCompressorWithoutAWait) {
  at::set_num_threads(1);
  const std::vector<doc::Component> all = calibrate::all_compressors();
  std::array<std::vector<calibrate::CodecSamples>, 2> found;
  comm::run_ranks(2, [&](Communicator& communicator) {
    TimedQueue queue(c10::kCPU);
    for (const doc::Component& component : all) {
      const HostReads reads;
      TensorCodecTimes times = probe_tensor_codec(communicator, queue, component, kFewElements);
      EXPECT_EQ(reads.count(), 0) << component.name;
      EXPECT_THAT(times.notes, IsEmpty()) << component.name;
      found[to_index(communicator.rank())].push_back(std::move(times.samples));
    }
  });
  for (std::size_t c = 0; c < all.size(); ++c) {
    const calibrate::CodecSamples &mine = found[0][c], &others = found[1][c];
    EXPECT_EQ(mine.name, all[c].name);
    ASSERT_EQ(mine.encode.size(), kFewElements.size()) << mine.name;
    ASSERT_EQ(mine.decode.size(), kFewElements.size()) << mine.name;
    for (std::size_t i = 0; i < kFewElements.size(); ++i) {
      EXPECT_EQ(mine.encode[i].bytes, 4.0 * static_cast<double>(kFewElements[i]));
      EXPECT_GT(mine.encode[i].seconds, 1e-6) << mine.name;
      EXPECT_GT(mine.decode[i].seconds, 1e-7) << mine.name;
      EXPECT_EQ(mine.encode[i].seconds, others.encode[i].seconds) << mine.name;
    }
  }
}

/// Marks are 1 us apart, and one more lies before the last call of each kind, which is of eight
/// tensors: encoding each round, decoding it, and what is kept take 2 us together.
TEST(TensorCodecProbe, AddsUpRoundsAndWhatIsKept) {
  comm::run_ranks(1, [](Communicator& communicator) {
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
  });
}

TEST(TensorCodecProbe, SaysWhereTheHostIsTheSlowerOneOrWaits) {
  comm::run_ranks(1, [](Communicator& communicator) {
    const auto notes = [&](TimedQueue queue) {
      return probe_tensor_codec(communicator, queue, {"fp16", {}}, kFewElements).notes;
    };
    EXPECT_THAT(notes(ticking_queue(8'000'000, false)),
                ElementsAre(HasSubstr("fp16: for a tensor of 16.4 kB the host takes 3.00 ms to "
                                      "enqueue what cpu does in")));
    EXPECT_THAT(notes(ticking_queue(10, true)),
                ElementsAre(HasSubstr("fp16: the host waits for cpu during coding")));
  });
}

TEST(BatchProbe, InvertsOneByOneAndTogether) {
  at::set_num_threads(1);
  comm::run_ranks(2, [](Communicator& communicator) {
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
  });
}

/// The same work as on processors, by code that reads nothing.
TEST(SecondOrderProbe, TimesWhatAStepEnqueues) {
  at::set_num_threads(1);
  comm::run_ranks(1, [](Communicator& communicator) {
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
  });
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
int refused_on(const std::vector<std::string>& devices, const std::string& words) {
  std::atomic<int> refused = 0;
  comm::run_ranks(static_cast<int>(devices.size()), [&](Communicator& communicator) {
    try {
      measure_on_device(communicator, {.device = devices[to_index(communicator.rank())]});
    } catch (const Kind& e) {
      EXPECT_THAT(e.what(), HasSubstr(words));
      ++refused;
    }
  });
  return refused;
}

TEST(DeviceProbe, RefusesADeviceOnEveryRank) {
  EXPECT_EQ(refused_on<UsageError>({"gpu", "gpu"}, "device \"gpu\": expected"), 2);
  EXPECT_EQ(refused_on<DeviceError>({"meta", "meta", "meta"}, "device meta: expected"), 3);
  EXPECT_EQ(refused_on<DeviceError>({"cpu", "meta", "cpu"}, "rank 1: device meta: expected"), 3);
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    EXPECT_EQ(refused_on<DeviceError>({"cuda:1", "cuda:1"}, "device cuda:1: expected"), 2);
  }
}

}  // namespace
}  // namespace linerate::torch_adapter
