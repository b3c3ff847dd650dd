// T_1 from recordings of several ranks: computation slowed by communication, a host slowed by its
// profiler, steps cut by the end of the recording; and from a recording of one rank alone.
#include "linerate/trace/to_workload.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "linerate/explain/explanation.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

/// Ranks of one model of ten equal layers, in us: a forward kernel of 400 and two backward kernels
/// of 500 each a layer, an optimizer of 500. After three layers of backward an exchange starts,
/// which lasts 300 longer than backward.
struct Recording {
  int ranks = 2, steps = 4;
  double slowdown = 1.25;    // of kernels during the exchange
  bool launch_sizes = true;  // are in it
  double host_wait = 0;      // before each forward the device waits for an operator of the host
  bool ahead = false;        // the host launches all work of a step within 2 ms
  bool exchanges = true;
  int layers = 10;

  double alone() const { return layers * 1400 + 500; }
  Job job() const { return nccl_job(ranks, events()); }

 private:
  Events events() const {
    Events events;
    double device = 100, host = 100;
    long id = 0;
    const auto launch = [&](double at) {
      events.push_back(launch_call(++id, at, 1));
      return correlation(id);
    };
    for (int s = 0; s < steps; ++s) {
      const double begin = host, lead = device;
      int launched = 0;
      const auto work = [&](const char* name, int grid, double us) {
        std::string args = launch(ahead ? begin + 10 * ++launched : std::max(begin, device - 5));
        if (launch_sizes) args += fmt::format(R"(,"grid":[{},1,1],"block":[128,1,1])", grid);
        events.push_back(kernel(name, device, us, args));
        device += us;
      };
      if (host_wait > 0) {
        events.push_back(op("aten::copy_", device, host_wait));
        device += host_wait;
      }
      for (int l = 0; l < layers; ++l) work("forward", 7, 400);
      double sent = -1;
      for (int l = 0; l < layers; ++l) {
        if (exchanges && l == 3) sent = device;
        const double us = sent < 0 ? 500 : 500 * slowdown;
        work("dgrad", 8, us);
        work("wgrad", 9, us);
        events.push_back(gradient(1000, ahead ? begin + 10 * ++launched : device - 6));
      }
      if (exchanges) {
        device += 300;
        const std::string args = collective("allreduce", layers * 1000, ranks) + "," +
                                 launch(ahead ? begin + 10 * ++launched : sent - 3);
        events.push_back(
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", sent, device - sent, args, 20));
      }
      work("sgd", 10, 500);
      host = ahead ? begin + 2'000 : device - 50;
      if (ahead && s + 1 < steps) host = std::max(host, lead);
      events.push_back(step(s, begin, host - begin));
    }
    return events;
  }
  static std::string gradient(long elements, double ts) {
    return op("autograd::engine::evaluate_function: AddmmBackward0", ts - 1, 0.5) + ",\n" +
           host_event("cpu_op", "torch::autograd::AccumulateGrad", ts, 1, floats(elements));
  }
};

TEST(OneRankStep, WhatCommunicationSlowsIsCountedAsApartFromIt) {
  const Recording r;
  const AloneSteps found = alone_steps(r.job());
  // 7 of 10 layers' backward ran during the exchange, 1.25 times slower: 1750 us in all.
  EXPECT_NEAR(found.time->step_s.value, r.alone() * 1e-6, 2e-6);
  EXPECT_THAT(found.time->origin,
              HasSubstr("during communication computation ran 1.25 times slower"));
  // Two places of a step may differ in more: all that was recorded is possible too.
  EXPECT_NEAR(*found.time->step_s.high, (r.alone() + 1750) * 1e-6, 2e-6);
  EXPECT_LE(*found.time->step_s.low, found.time->step_s.value);
}

TEST(OneRankStep, WorkloadsHaveTheTimesOfARankAlone) {
  const Recording r;
  const auto [w, notes] = import_job(r.job());
  ASSERT_EQ(w.gradients.size(), 10u);
  EXPECT_NEAR(*w.step_s, r.alone() * 1e-6, 2e-6);
  // The first pass of autograd begins when the first layer's kernels are done.
  for (std::size_t g = 0; g < 10; ++g)
    EXPECT_NEAR(w.gradients[g].ready_s, static_cast<double>(g) * 1e-3, 3e-6) << g;
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("T_1 14.5 ms"), HasSubstr("less exposed"))));
  const doc::Workload again = doc::workload_from_json(doc::to_json(w), "again");
  EXPECT_EQ(again.step_low_s, w.step_low_s);
  EXPECT_EQ(again.step_origin, w.step_origin);
}

TEST(OneRankStep, AnUnknownSlowdownWidensTheInterval) {
  const Recording r{.launch_sizes = false};
  const AloneSteps found = alone_steps(r.job());
  EXPECT_THAT(found.time->origin, HasSubstr("is not known"));
  EXPECT_NEAR(found.time->step_s.value, (r.alone() + 1750) * 1e-6, 2e-6);
  EXPECT_LE(*found.time->step_s.low, r.alone() * 1e-6 + 2e-6);
}

TEST(OneRankStep, WaitsForTheHostWidenTheIntervalOfT1) {
  const Recording r{.host_wait = 600};
  const AloneSteps found = alone_steps(r.job());
  EXPECT_NEAR(found.time->step_s.value, r.alone() * 1e-6, 2e-6);
  EXPECT_GE(*found.time->step_s.high, (r.alone() + 600) * 1e-6);
  EXPECT_THAT(found.notes, Contains(AllOf(HasSubstr("profiler"), HasSubstr("waits 600 us"))));
}

TEST(OneRankStep, AHostWithMoreToDoThanTheDeviceIsTheStep) {
  const Recording r{.host_wait = 40'000};
  const doc::Bounded step_s = alone_steps(r.job()).time.value().step_s;
  EXPECT_NEAR(step_s.value, 40'000e-6, 100e-6);
  EXPECT_NEAR(*step_s.low, r.alone() * 1e-6, 2e-6);
}

TEST(OneRankStep, OneRankAloneIsAsRecorded) {
  const Recording r{.ranks = 1, .exchanges = false};
  const AloneSteps found = alone_steps(r.job());
  EXPECT_NEAR(found.time->step_s.value, r.alone() * 1e-6, 1e-9);
  EXPECT_FALSE(found.time->step_s.has_interval());
  EXPECT_THAT(found.time->origin, HasSubstr("as recorded"));
}

TEST(OneRankStep, OfSeveralRanksMakesTheirsFromARecordingOfOneAlone) {
  const Recording alone{.ranks = 1, .exchanges = false}, job{.slowdown = 1.6};
  std::vector<std::string> notes;
  const doc::Workload w = workload_of(job.job(), "job", notes, alone.job());
  EXPECT_NEAR(*w.step_s, alone.alone() * 1e-6, 1e-9);
  EXPECT_NEAR(w.gradients.back().ready_s, 9e-3, 3e-6);
  EXPECT_EQ(w.current, "ddp");  // of the job
  Job explained = job.job();
  find_one_rank_time(explained, alone.job());
  const Breakdown b = break_down(explained);
  EXPECT_NEAR(*b.scaling_factor, alone.alone() * 1e-6 / *b.step_s, 1e-9);
}

TEST(OneRankStep, WhatIsNoRecordingOfThatRankAloneIsRefused) {
  const Job job = Recording().job();
  const auto refused = [&](const Job& alone, const char* why) {
    EXPECT_THAT(refusal_of([&] { alone_steps(job, alone); }),
                AllOf(HasSubstr("--alone"), HasSubstr(why)));
  };
  refused(job, "found exchanges");
  const Recording other{.ranks = 1, .exchanges = false, .layers = 8};
  refused(other.job(), "10 of 10000 elements, found 8 of 8000 elements");
  refused(job_from(trace_of(0, 1, {kernel("gemm", 0, 10)})), "expected marked steps");
}

TEST(OneRankStep, AStepWhoseMarkEndsBeforeItsDeviceIsCut) {
  const Recording r{.ahead = true};
  const Job job = r.job();
  for (const RankActivity& rank : job.ranks) {
    ASSERT_EQ(rank.steps.size(), 4u);
    EXPECT_FALSE(rank.steps[2].cut);
    EXPECT_TRUE(rank.steps[3].cut);
    // On the device it is as long as the others.
    EXPECT_EQ(rank.steps[3].on_device->length(), rank.steps[2].on_device->length());
  }
  EXPECT_NEAR(alone_steps(job).time->step_s.value, r.alone() * 1e-6, 2e-6);
  const Breakdown b = break_down(job);
  EXPECT_TRUE(b.steps.back().cut);
}

}  // namespace
}  // namespace linerate::trace
