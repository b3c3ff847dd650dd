#include "linerate/trace/format.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text, const std::string& name = "file") {
  try {
    job_from(text, name);
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Format, AHeadFullOfProcessGroupsIsStillAPyTorchTrace) {
  // 1024 ranks in many groups fill the first 64 KiB before any event; nccl-tests name nccl_version
  // too.
  const std::string groups(70'000, ' ');
  const std::string text =
      R"({"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":0,"world_size":1,"nccl_version":"2.27.3","pg_config":[)" +
      groups + R"(]},"traceName":"all_reduce_perf.json","traceEvents":[)" + kernel("gemm", 0, 10) +
      "]}";
  EXPECT_EQ(format_of(std::string_view(text).substr(0, 65536)), Format::kineto);
  EXPECT_EQ(job_from(text).ranks.at(0).compute.size(), 1u);
}

TEST(Format, ABareArrayWithWordsOfBenchmarksIsATrace) {
  EXPECT_EQ(format_of("[" + kernel("my_perf_region algbw busbw", 0, 10) + "]"), Format::kineto);
  EXPECT_EQ(job_from("[" + kernel("my_perf_region", 0, 10) + "]").ranks.at(0).compute.size(), 1u);
}

TEST(Format, ATagOfMpirunIsText) {
  EXPECT_EQ(format_of("[1,0]<stdout>:# nThread 1 nGpus 1 minBytes 8\n"), Format::collective_log);
  EXPECT_EQ(format_of("[2026-01-01 10:00] all_reduce_perf\n# size count type time algbw busbw\n"),
            Format::collective_log);
}

TEST(Format, AByteOrderMarkIsNoObstacle) {
  EXPECT_EQ(job_from("\xef\xbb\xbf" + trace_of(0, 1, {kernel("gemm", 0, 10)})).ranks.size(), 1u);
}

TEST(Format, WhatNoImporterReadsIsNamedWithANextStep) {
  EXPECT_THAT(refusal("SQLite format 3\0...", "run.sqlite"),
              HasSubstr("run.sqlite: an SQLite database, as nsys exports it, is not read"));
  EXPECT_THAT(refusal("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
                      "cycle_time_ms,tensor_fusion_threshold,score\n0,0,0,1,5,64,1.5\n"),
              HasSubstr("a Horovod autotune log scores settings"));
  EXPECT_THAT(
      refusal(R"([{"name":"AllReduce","ph":"b","id":1,"ts":1,"args":{"SeqNum":1,"CommHash":2}}])"),
      HasSubstr("NCCL's profiler plug-in is not read"));
  EXPECT_THAT(refusal("[[1, 2, 3], [[4, 5], [6, 7]]]"), HasSubstr("memory timeline"));
  EXPECT_THAT(refusal("hello"), HasSubstr("file: expected a PyTorch, Horovod or Chakra trace"));
}

TEST(Format, JsonWithoutEventsIsNoTrace) {
  EXPECT_THAT(refusal(R"([{"a":1},{"b":2}])"),
              HasSubstr("expected events with \"ph\" or \"cat\", found 2 elements without them"));
  EXPECT_THAT(refusal(R"({"traceEvents":[1,[2]]})"), HasSubstr("found 2 elements without them"));
  EXPECT_THAT(refusal(R"({"args":"x","timing_log":[1.5]})"), HasSubstr("no \"traceEvents\" in it"));
}

TEST(Format, AMixtureOfKindsIsRefused) {
  std::vector<Input> inputs;
  inputs.push_back(Input::from_memory(trace_of(0, 1, {}), "rank0.json"));
  inputs.push_back(Input::from_memory(R"([{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":1,"pid":7}])",
                                      "horovod.json"));
  EXPECT_THROW(read_job(inputs), UsageError);
}

}  // namespace
}  // namespace linerate::trace
