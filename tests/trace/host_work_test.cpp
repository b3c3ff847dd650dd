// Jobs whose device is the CPU: what of the host's records is computation.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/explain/explanation.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::HasSubstr;

std::string host(const char* category, const char* name, long ts, long dur, int tid = 1) {
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{{}}}})",
      category, name, tid, ts, dur);
}

TEST(HostWork, AnAnnotationThatContainsABroadcastDoesNotHideIt) {
  // DDP's forward from 0 to 100 broadcasts buffers from 10 to 60 and computes from 60 to 90.
  const Breakdown b = break_down(job_from(
      trace_of(0, 1,
               {step(1, 0, 100), host("user_annotation", "DistributedDataParallel.forward", 0, 100),
                host("cpu_op", "c10d::broadcast_", 9, 1),
                host("user_annotation", "gloo:broadcast", 10, 50, 2),
                host("cpu_op", "aten::linear", 60, 30)},
               "gloo")));
  EXPECT_NEAR(b.whole.compute_s, 30e-6, 1e-12);
  EXPECT_NEAR(b.whole.exposed_s, 50e-6, 1e-12);
}

TEST(HostWork, AnOperatorThatCommunicatesInsideCountsByItsOwnOperators) {
  // A backward of synchronised batch norm waits for its all-reduce from 20 to 60.
  const Breakdown b = break_down(job_from(trace_of(
      0, 1,
      {step(1, 0, 100), host("cpu_op", "SyncBatchNormBackward", 0, 90),
       host("cpu_op", "aten::mul", 5, 10), host("cpu_op", "c10d::allreduce_", 18, 2),
       host("user_annotation", "gloo:all_reduce", 20, 40, 2), host("cpu_op", "aten::mul", 62, 20)},
      "gloo")));
  EXPECT_NEAR(b.whole.compute_s, 30e-6, 1e-12);
  EXPECT_NEAR(b.whole.exposed_s, 40e-6, 1e-12);
}

TEST(HostWork, WhatACommunicationDoesOnItsOwnThreadIsPartOfIt) {
  // A gather from 20 to 80; Gloo's thread prepares it from 21 to 25, and copies from 70 to 79 what
  // came: rank 0 waits all the while.
  const auto rank = [](int r, long asked) {
    return trace_of(r, 2,
                    {step(1, 0, 100), host("cpu_op", "aten::mm", 0, asked - 1),
                     host("cpu_op", "c10d::allgather_", asked, 1),
                     host("user_annotation", "gloo:all_gather", asked + 1, 79 - asked, 2),
                     host("cpu_op", "aten::empty", asked + 2, 4, 2),
                     host("cpu_op", "aten::copy_", 70, 9, 2), host("cpu_op", "aten::mm", 81, 19)},
                    "gloo");
  };
  const Breakdown b = break_down(job_of_ranks({rank(0, 19), rank(1, 59)}));
  EXPECT_NEAR(b.ranks[0].whole.compute_s, 37e-6, 1e-12);
  EXPECT_NEAR(b.ranks[0].whole.exposed_s, 60e-6, 1e-12);
  ASSERT_EQ(b.path.causes.size(), 1u);
  EXPECT_EQ(b.path.causes.front().rank, 1);
  EXPECT_NEAR(b.path.causes.front().per_step_s, 40e-6, 1e-12);
}

TEST(HostWork, WhatTheLoaderDoesIsNoComputationOfTheModel) {
  const Breakdown b = break_down(
      job_from(trace_of(0, 1,
                        {step(1, 0, 100),
                         host("user_annotation",
                              "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 40),
                         host("cpu_op", "aten::stack", 5, 30), host("cpu_op", "aten::mm", 40, 60)},
                        "")));
  EXPECT_NEAR(b.whole.compute_s, 60e-6, 1e-12);
  EXPECT_EQ(judge(b).finding, Finding::input_bound);  // 40 of 100
}

TEST(HostWork, AJobOfOneRankOnTheCpuHasADevice) {
  const Job job = job_from(
      R"({"traceEvents":[)" + step(1, 0, 100) + "," + host("cpu_op", "aten::mm", 0, 95) + "]}",
      "rank0.json");
  EXPECT_TRUE(job.cpu_device);
  const Breakdown b = break_down(job);
  EXPECT_TRUE(b.has_device);
  EXPECT_NEAR(b.whole.compute_s, 95e-6, 1e-12);
  EXPECT_EQ(judge(b).finding, Finding::compute_bound);
}

TEST(HostWork, TheHostOfAnAcceleratorIsNotTakenForTheDevice) {
  const std::string mm = host("cpu_op", "aten::mm", 0, 95);
  const auto of = [&](const std::string& more) {
    return job_from(trace_of(0, 1, {step(1, 0, 100), mm, more}, "")).cpu_device;
  };
  EXPECT_TRUE(of(mm));
  EXPECT_FALSE(of(host("cpu_op", "aten::cudnn_convolution", 0, 9)));
  EXPECT_FALSE(of(host("user_annotation", "nccl:all_reduce", 0, 9)));
  EXPECT_FALSE(of(
      R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1,"dur":1,)"
      R"("args":{"correlation":4}})"));
  EXPECT_FALSE(job_from(trace_of(0, 1, {step(1, 0, 100), mm})).cpu_device);  // its back end is NCCL
}

TEST(ExplainJson, OfATraceWithoutADeviceItsTimesAreNull) {
  const Breakdown b =
      break_down(job_from(trace_of(0, 1, {step(1, 0, 100), host("cpu_op", "aten::mm", 0, 95)})));
  const std::string json = explain_json(b, judge(b));
  for (const char* key : {"compute_busy_s", "communication_busy_s", "overlap_s",
                          "exposed_communication_s", "idle_share", "exposed_share"})
    EXPECT_THAT(json, HasSubstr(fmt::format("\"{}\": null", key)));
}

}  // namespace
}  // namespace linerate::trace
