#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/input/json_token.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/to_workload.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::HasSubstr;

constexpr const char* kAllReduceKernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)";

Breakdown broken_down(const std::vector<std::string>& events, int world = 2) {
  return break_down(job_from(trace_of(0, world, events)));
}

TEST(Decimal, KeepsEveryDigitOfAnEpochMicrosecond) {
  // 1734001122334455.678 us needs 61 bits in ns; a double would round to .75.
  EXPECT_EQ(parse_us_as_ns("1734001122334455.678"), 1734001122334455678);
  EXPECT_EQ(parse_us_as_ns("1.734001122334455e+15"), 1734001122334455000);
  EXPECT_EQ(parse_us_as_ns("\"12.5\""), 12500);
  EXPECT_EQ(parse_us_as_ns("8.000\n  "), 8000);
  EXPECT_EQ(parse_us_as_ns("9223372036854775.807"), INT64_MAX);
  EXPECT_EQ(parse_us_as_ns("0.1234"), 123);
  EXPECT_FALSE(parse_us_as_ns("."));
  EXPECT_EQ(parse_us_as_ns("-0.0015"), -2);  // half away from zero
  EXPECT_FALSE(parse_us_as_ns("99999999999999999999"));
  EXPECT_FALSE(parse_us_as_ns("12abc"));
  EXPECT_EQ(parse_whole("9223372036854775807"), INT64_MAX);
  EXPECT_FALSE(parse_whole("9223372036854775808"));
  EXPECT_EQ(parse_whole("1.00000000000000000000001"), 1);
  EXPECT_EQ(parse_unsigned("18446744073709551615"), 18446744073709551615ull);
}

TEST(Breakdown, BusyTimesAreUnionsOverStreams) {
  // Compute 0..100 and 50..150 on two streams: 150. All-reduce 120..220: overlap 30, exposed 70. A
  // copy counts nowhere.
  const Breakdown b = broken_down(
      {kernel("gemm", 0, 100), kernel("gemm", 50, 100, "", 8),
       kernel(kAllReduceKernel, 120, 100, collective("allreduce", 1000, 2)),
       R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":7,"ts":300,"dur":50,)"
       R"("args":{"stream":7}})"});
  EXPECT_NEAR(b.whole.compute_s, 150e-6, 1e-12);
  EXPECT_NEAR(b.whole.communication_s, 100e-6, 1e-12);
  EXPECT_NEAR(b.whole.overlap_s, 30e-6, 1e-12);
  EXPECT_NEAR(b.whole.exposed_s, 70e-6, 1e-12);
  EXPECT_EQ(b.collective_bytes, 4000);
  EXPECT_EQ(b.gradient_bytes, 4000);
}

TEST(Kineto, EveryEraOfNamesGivesTheSameNumbers) {
  const auto event = [](const char* cat, const char* name, int ts, int dur) {
    return fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":0,"tid":"7","ts":{},"dur":{}}})",
                       cat, name, ts, dur);
  };
  for (const char* nccl :
       {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclDevKernel_Generic(void*)",
        "nccldevkernel_AllReduce", "ncclSymkDevKernel_AllReduce_RSxLD_AGxST",
        "mscclKernel_Sum_float", "rcclGenericKernel", "nccl::all_reduce_kernel"}) {
    for (const char* cat : {"kernel", "Kernel"}) {
      const Breakdown b = broken_down({event(cat, "sgemm", 0, 10), event(cat, nccl, 5, 10)});
      EXPECT_NEAR(b.whole.communication_s, 10e-6, 1e-12) << nccl;
      EXPECT_NEAR(b.whole.overlap_s, 5e-6, 1e-12) << nccl;
      EXPECT_FALSE(b.collective_bytes.has_value());  // unknown is null
    }
  }
}

TEST(Kineto, NcclInACpuCategoryIsNoKernel) {
  const Breakdown b = broken_down(
      {kernel("gemm", 0, 10),
       R"({"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":1,"tid":1,"ts":0,)"
       R"("dur":500})"},
      1);
  EXPECT_EQ(b.whole.communication_s, 0);
}

TEST(Kineto, SizesComeThroughTheExternalIdOnlyWhereItIsNotTheCorrelation) {
  const std::string op =
      R"({"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":0,"dur":1,)"
      R"("args":{"External id":5,)" +
      collective("allreduce", 256, 2) + "}}";
  EXPECT_EQ(
      broken_down({op, kernel(kAllReduceKernel, 10, 5, R"("External id":5,"correlation":77)")})
          .collective_bytes,
      1024);
  EXPECT_FALSE(
      broken_down({op, kernel(kAllReduceKernel, 10, 5, R"("External id":5,"correlation":5)")})
          .collective_bytes);
}

TEST(Kineto, SizesOfOldTracesAreDeducedFromTheAnnotationAroundTheLaunch) {
  const Breakdown b = broken_down(
      {R"({"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":1,"tid":9,"ts":0,)"
       R"("dur":10,"args":{"Input Dims":[[4096]],"Input type":["c10::Half"]}})",
       R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":9,"ts":4,"dur":1,)"
       R"("args":{"correlation":5}})",
       kernel("ncclKernel_AllReduce_RING_LL_Sum_half", 10, 5,
              R"("External id":5,"correlation":5)")});
  EXPECT_FALSE(b.collective_bytes);  // no record of the collective states it
  EXPECT_EQ(b.collective_bytes_deduced, 8192);
  EXPECT_EQ(b.collectives.at(0).bytes, 8192);
}

TEST(Kineto, ArgumentsBeatNamesAndWaitIsNoCommunication) {
  // all-to-all shows as SendRecv of int8; its arguments say floats.
  const Breakdown b = broken_down({kernel("ncclDevKernel_SendRecv_RING_SIMPLE_Sum_int8_t", 0, 10,
                                          collective("all_to_allv", 100, 4)),
                                   kernel(kAllReduceKernel, 20, 10, collective("wait", 0, -1))},
                                  4);
  EXPECT_EQ(b.collectives.at(0).op, CommOp::all_to_all);
  EXPECT_EQ(b.collectives.at(0).bytes, 400);
  EXPECT_EQ(b.collectives.at(1).op, CommOp::all_reduce);
  EXPECT_FALSE(b.collectives.at(1).bytes);
}

TEST(Kineto, BadDurationsAreRefusedAndCounted) {
  const Job job = job_from(trace_of(
      0, 1,
      {kernel("a", 0, 10), R"({"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":50})",
       kernel("c", 20, 9e11),
       R"({"ph":"X","cat":"kernel","name":"d","pid":0,"tid":7,"ts":"soon","dur":1})",
       kernel("e", 90, -5)}));
  EXPECT_EQ(job.ranks[0].compute.size(), 1u);
  EXPECT_THAT(job.notes, testing::Contains(HasSubstr("1 events have no \"dur\"")));
  EXPECT_THAT(job.notes,
              testing::Contains(HasSubstr("1 events have a \"ts\" or \"dur\" that is no number")));
  EXPECT_THAT(job.notes, testing::Contains(HasSubstr("2 events last longer than a day")));
}

TEST(Kineto, IdsAbove2To63AndMetadataBehindTheEventsAreFine) {
  const Job job =
      job_from(R"({"traceEvents":[)" +
               kernel(kAllReduceKernel, 0, 10,
                      R"("correlation":9223372036854775809,"Comms Id":18446744073709551615,)" +
                          collective("allreduce", 8, 2)) +
               R"(],"baseTimeNanoseconds":1735632360000000000,)"
               R"("distributedInfo":{"rank":3,"world_size":8}})");
  EXPECT_EQ(job.ranks[0].rank, 3);
  EXPECT_EQ(job.world_size, 8);
  EXPECT_EQ(job.origin_ns, 1735632360000000000);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 32);
}

TEST(Kineto, ArgumentsMayStandBeforeTheCategory) {
  const Job job =
      job_from(R"([{"args":{"Group size":2,"dtype":"Float","In msg nelems":4,"Out msg nelems":4,)"
               R"("Collective name":"allreduce"},)"
               R"("dur":5,"ts":1,"name":"ncclDevKernel_AllReduce","cat":"kernel","ph":"X"}])");
  EXPECT_EQ(job.ranks[0].communications.at(0).bytes, 16);
}

TEST(Kineto, BrokenJsonOfRealFilesIsMendedAndSaid) {
  const std::string good =
      trace_of(0, 1, {kernel("gemm", 0, 10), kernel("gemm", 20, 10), kernel("gemm", 40, 10)});
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return job_from(text);
  };
  EXPECT_EQ(damaged("gemm", "ge\nmm").ranks[0].compute.size(), 3u);  // raw newline in a name
  EXPECT_EQ(damaged("gemm", "ge\"m\"m").ranks[0].compute.size(),
            3u);  // unescaped quotes (pytorch#146900)
  EXPECT_EQ(damaged("gemm", "ge\xff\xfe").ranks[0].compute.size(), 3u);  // no UTF-8
  const Job cut =
      job_from(good.substr(0, good.rfind("gemm") + 2));  // the file ends inside the third event
  EXPECT_EQ(cut.ranks[0].compute.size(), 2u);
  EXPECT_THAT(cut.notes, testing::Contains(HasSubstr("ends early")));
}

TEST(Kineto, WhatIsNoTraceIsRefusedByName) {
  EXPECT_THROW(job_from(R"({"hello": [1, 2, 3]})"), InputError);
  EXPECT_THROW(job_from("not JSON at all"), InputError);
  EXPECT_THROW(job_from("{\"traceEvents\": 7}"), InputError);
  EXPECT_THROW(job_from(""), InputError);
}

TEST(Kineto, MissingCommunicationOfAJobOfManyRanksIsUnknownNotZero) {
  const Breakdown b = broken_down({step(0, 0, 100), kernel("renamed_all_reduce", 0, 90)}, 8);
  EXPECT_TRUE(b.communication_unknown);
  EXPECT_EQ(judge(b).finding, Finding::inconclusive);
  EXPECT_THAT(b.notes, testing::Contains(HasSubstr("communication times and T_1 are unknown")));
}

TEST(Kineto, UnsortedEventsGiveTheSameUnions) {
  const Breakdown b =
      broken_down({kernel("b", 200, 50), kernel("a", 0, 100), kernel("c", 90, 20)}, 1);
  EXPECT_NEAR(b.whole.compute_s, 160e-6, 1e-12);  // 0..110 and 200..250
}

TEST(Kineto, CommunicationsThatWereIssuedBeforeTheRecordingAreNoneWithoutSizes) {
  // Two kernels whose launches came before, then one with its record; another one is bare.
  const auto notes_of = [](bool more) {
    std::vector<std::string> events = {
        step(0, 0, 100), kernel(kAllReduceKernel, 5, 10), kernel(kAllReduceKernel, 20, 10),
        kernel(kAllReduceKernel, 40, 10, collective("allreduce", 1000, 2))};
    if (more) events.push_back(kernel(kAllReduceKernel, 60, 10));
    return testing::PrintToString(job_from(trace_of(0, 2, events)).notes);
  };
  EXPECT_THAT(notes_of(false), HasSubstr("2 of 3 communications were issued before the recording"));
  EXPECT_THAT(notes_of(false), testing::Not(HasSubstr("carry no size")));
  EXPECT_THAT(notes_of(true), HasSubstr("2 of 4 communications were issued before the recording"));
  EXPECT_THAT(notes_of(true), HasSubstr("1 of 4 communications carry no size"));
}

TEST(Kineto, ALaunchOfSeveralCollectivesMovesTheSumOfTheirRecords) {
  // Two groups; the launch in an annotation comes after the records of its collectives.
  const auto host = [](const char* cat, const char* name, int ts, int dur,
                       const std::string& args) {
    return fmt::format(
        R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":1,"ts":{},"dur":{},"args":{{{}}}}})",
        cat, name, ts, dur, args);
  };
  const auto sizes_of = [&](const std::vector<const char*>& operations) {
    std::vector<std::string> events;
    int ts = 0, elements = 0;
    for (const int correlation : {7, 8}) {
      for (const char* operation : operations)
        events.push_back(host("cpu_op", "record_param_comms", ts += 10, 5,
                              collective(operation, elements += 1000, 2)));
      events.push_back(host("user_annotation", "nccl:coalesced", ts += 10, 30, ""));
      const std::string id = fmt::format(R"("correlation":{})", correlation);
      events.push_back(host("cuda_runtime", "cudaLaunchKernelExC", ts += 10, 4, id));
      events.push_back(kernel(kAllReduceKernel, 1000 * correlation, 100, id));
    }
    std::vector<std::int64_t> bytes;
    const Job job = job_from(trace_of(0, 2, events));
    for (const Communication& c : job.ranks.at(0).communications)
      bytes.push_back(c.deduced ? -2 : c.bytes);
    return bytes;
  };
  EXPECT_THAT(sizes_of({"allreduce"}), testing::ElementsAre(4000, 8000));
  EXPECT_THAT(sizes_of({"allreduce", "allreduce", "allreduce"}),
              testing::ElementsAre(24'000, 60'000));
  EXPECT_THAT(sizes_of({"allreduce", "broadcast"}), testing::ElementsAre(-1, -1));
}

TEST(Kineto, OfGraphsItIsSaidThatTheyHideSizes) {
  std::vector<std::string> events = {step(0, 0, 1000)};
  for (const char* name : {"gemm", kAllReduceKernel, "gemm", kAllReduceKernel})
    events.push_back(kernel(name, 100 * static_cast<int>(events.size()), 50, R"("correlation":7)"));
  const Job job = job_from(trace_of(0, 2, events));
  EXPECT_THAT(job.notes, testing::Contains(HasSubstr("2 of 2 communications run in CUDA graphs")));
  EXPECT_THAT(job.notes, testing::Not(testing::Contains(HasSubstr("record_shapes"))));
  try {
    std::vector<std::string> notes;
    static_cast<void>(workload_of(job, "w", notes));
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("its steps run in CUDA graphs"));
  }
}

TEST(Kineto, TheListOfEventsIsAtTheRootAndNotInAStringOrBelow) {
  for (const char* before : {R"("note":"\"traceEvents\": [")", R"("a":{"traceEvents":[]})"}) {
    const Job job =
        job_from(fmt::format(R"({{{},"traceEvents":[{}]}})", before, kernel("gemm", 0, 8)));
    EXPECT_EQ(job.ranks.at(0).compute.size(), 1u) << before;
  }
}

TEST(Kineto, GradientsKeepTheirElementType) {
  const auto gradient = [](const char* type) {
    const Job job = job_from(trace_of(
        0, 1,
        {step(0, 0, 100), kernel("gemm", 0, 10),
         fmt::format(
             R"({{"ph":"X","cat":"cpu_op","name":"torch::autograd::AccumulateGrad","pid":1,)"
             R"("tid":1,"ts":20,"dur":1,"args":{{"Input Dims":[[8]],"Input type":["{}"]}}}})",
             type)}));
    return job.gradients.at(0).dtype;
  };
  EXPECT_EQ(gradient("c10::BFloat16"), DType::bf16);
  EXPECT_EQ(gradient("c10::Half"), DType::f16);
  EXPECT_EQ(gradient("double"), DType::f64);
  EXPECT_EQ(gradient("float"), DType::f32);
}

TEST(RankName, IsFoundInFileNames) {
  for (const char* name :
       {"rank-3.json", "a/rank3_trace.json", "job_RANK_3.pt", "worker3.1700.pt.trace.json.gz"})
    EXPECT_EQ(rank_in_name(name), 3) << name;
  EXPECT_EQ(rank_in_name("ranking.json"), -1);
}

}  // namespace
}  // namespace linerate::trace
