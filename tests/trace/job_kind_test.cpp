// What a job is comes from what it does: kernels of other libraries, kernels from before the
// recording, and annotations of libraries that split nothing.
#include <gmock/gmock.h>

#include "linerate/core/text.hpp"
#include "linerate/trace/explain/bucket_rule.hpp"
#include "linerate/trace/explain/explanation.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/one_rank_step.hpp"
#include "trace/gloo_text.hpp"
#include "trace/synthetic_job.hpp"

namespace linerate::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(KernelNames, OfEveryLibraryThatCommunicatesAreKnown) {
  struct Case {
    const char* name;
    Communicates communicates;
    CommOp op;
  };
  const std::vector<Case> cases = {
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", Communicates::yes,
       CommOp::all_reduce},
      {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", Communicates::yes,
       CommOp::unknown},
      {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
       Communicates::yes, CommOp::all_reduce},
      {"void aiter::cross_device_reduce_2stage<float, 8>()", Communicates::yes, CommOp::all_reduce},
      {"multimem_all_reduce_kernel<c10::BFloat16>", Communicates::yes, CommOp::all_reduce},
      {"multimem_all_gather_kernel<16>", Communicates::yes, CommOp::all_gather},
      {"one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>", Communicates::yes, CommOp::all_reduce},
      {"two_shot_all_reduce_kernel_inplace<float>", Communicates::yes, CommOp::all_reduce},
      {"flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float>",
       Communicates::yes, CommOp::all_reduce},
      {"tensorrt_llm::kernels::oneShotAllReduceKernel<float, 2>", Communicates::yes,
       CommOp::all_reduce},
      {"mscclpp::allreduce7<float>", Communicates::yes, CommOp::all_reduce},
      {"oneccl_allreduce_pcie<float>", Communicates::yes, CommOp::all_reduce},
      {"oneccl_reduce_base<float, 2, 16, 1, 1, 2>", Communicates::yes, CommOp::unknown},
      {"deep_ep::internode_ll::dispatch<true>", Communicates::yes, CommOp::all_to_all},
      {"my_own_allreduce_kernel", Communicates::maybe, CommOp::unknown},
      {"void lamport_style_sum<float>", Communicates::maybe, CommOp::unknown},
      {"aten::all_reduce", Communicates::no, CommOp::unknown},
      {"void at::native::reduce_kernel<512, 1>", Communicates::no, CommOp::unknown},
      {"sm90_xmma_gemm_bf16bf16_bf16f32", Communicates::no, CommOp::unknown}};
  for (const Case& c : cases) {
    const std::string low = lowered(c.name);
    EXPECT_EQ(kernel_communicates(low), c.communicates) << c.name;
    if (c.communicates == Communicates::yes) {
      EXPECT_EQ(op_of_kernel_name(low), c.op) << c.name;
    }
  }
}

/// Four steps of 5,200 us: 3,000 of computation, then 2,000 of `name`, then 200 of NCCL.
Job with_kernel(const std::string& name) {
  std::vector<std::string> events;
  for (int i = 0; i < 4; ++i) {
    const double at = 5'200.0 * i;
    events.push_back(step(i, at, 5'200));
    events.push_back(kernel("gemm", at, 3'000));
    events.push_back(kernel(name, at + 3'000, 2'000));
    events.push_back(kernel("ncclDevKernel_AllGather_RING_LL", at + 5'000, 200,
                            collective("_allgather_base", 1'000'000, 2), 20));
  }
  Job job = job_of_ranks({trace_of(0, 2, events), trace_of(1, 2, events)});
  find_one_rank_time(job, std::nullopt);
  return job;
}

TEST(OtherKernels, OfAKnownLibraryAreCommunicationAndNamed) {
  const Explanation e = explain(with_kernel("vllm::cross_device_reduce_1stage<float, 2>"));
  EXPECT_EQ(e.verdict.finding, Finding::network_bound);
  EXPECT_NEAR(e.verdict.exposed_share, 2.2 / 5.2, 1e-6);
  EXPECT_NEAR(*e.breakdown.scaling_factor, 3.0 / 5.2, 1e-3);
  EXPECT_THAT(e.breakdown.notes,
              Contains(HasSubstr("counted as communication by their names: "
                                 "vllm::cross_device_reduce_1stage<float, 2> (8.00 ms)")));
}

TEST(OtherKernels, ThatOnlySoundLikeItLeaveVerdictAndT1Open) {
  const Explanation e = explain(with_kernel("house_allreduce_kernel"));
  EXPECT_EQ(e.verdict.finding, Finding::inconclusive);
  EXPECT_THAT(e.verdict.reason, HasSubstr("between 3.8 % and 42.3 % of the step"));
  EXPECT_THAT(e.verdict.reason, HasSubstr("house_allreduce_kernel"));
  const doc::Bounded& alone = e.breakdown.one_rank->step_s;
  EXPECT_LE(*alone.low, 3.0e-3 + 1e-9);
  EXPECT_NEAR(*alone.high, 5.0e-3, 1e-5);
  EXPECT_THAT(e.breakdown.one_rank->origin, HasSubstr("sound like communication"));
}

TEST(OtherKernels, WithoutOneThatSoundsLikeItT1IsUnknown) {
  std::vector<std::string> events;
  for (int i = 0; i < 3; ++i) {
    events.push_back(step(i, 1'000 * i, 1'000));
    events.push_back(kernel("gemm", 1'000 * i, 900));
  }
  Job job = job_of_ranks({trace_of(0, 2, events), trace_of(1, 2, events)});
  find_one_rank_time(job, std::nullopt);
  EXPECT_FALSE(job.one_rank);
  EXPECT_FALSE(break_down(job).scaling_factor);
}

/// The device was still at `before` when the recording began, and a copy ran earlier.
std::string with_before(std::string trace, const std::string& before) {
  const std::string events = "\"traceEvents\":[";
  const std::string copy =
      R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":9,"ts":1000001,"dur":5,"args":{"stream":9,"correlation":1}},)";
  return trace.insert(trace.find(events) + events.size(),
                      copy + kernel(before, 1'000'010, 50, R"("correlation":999999)", 20) + ",");
}

TEST(KernelsFromBefore, BelongToNoStep) {
  std::vector<std::string> plain = SyntheticJob{}.traces(Recorded::gpu), with;
  for (const std::string& text : plain)
    with.push_back(with_before(text, "ncclDevKernel_SendRecv(ncclDevComm*)"));
  const Job job = job_of_ranks(plain), other = job_of_ranks(with);
  EXPECT_EQ(other.sharding, "");
  EXPECT_EQ(other.ranks[0].communications.size(), job.ranks[0].communications.size() + 1);
  EXPECT_EQ(other.ranks[0].communications[0].step, -1);
  const doc::Workload one = import_job(job).workload, two = import_job(other).workload;
  EXPECT_EQ(two.gradient_bytes(), one.gradient_bytes());
  EXPECT_EQ(two.current, one.current);
  EXPECT_NEAR(*two.step_s, *one.step_s, 0.01 * *one.step_s);
}

/// An FSDP job over Gloo: what it asks for in each step, besides the sum of both gradients.
Job fsdp_with(const std::string& other) {
  std::vector<std::string> events;
  for (int s = 0; s < 3; ++s) {
    const double at = 1000.0 * s;
    events.push_back(step(s, at, 1000));
    events.push_back(host_event("user_annotation", "FSDP::root_pre_forward", at + 1, 5));
    events.push_back(op("aten::linear", at + 10, 80));
    if (!other.empty())
      events.push_back(
          host_event("cpu_op", "c10d::_allgather_base_", at + 12, 5,
                     R"("Input Dims":[[3000],[1500]],"Input type":["float","float"])") +
          ",\n" +
          host_event("user_annotation", other, at + 20, 30,
                     R"("Input Dims":[[1500]],"Input type":["float"])", 50));
    events.push_back(gradient(1000, at + 110));
    events.push_back(gradient(500, at + 210));
    events.push_back(gloo_all_reduce(1500, at + 220, at + 230, 100));
    events.push_back(optimizer_step(at + 900));
  }
  return job_of_texts({gloo_trace(0, 2, events), gloo_trace(1, 2, events)});
}

TEST(Sharding, OfAMeshThatSplitsNothingIsDataParallelism) {
  const Job whole = fsdp_with("");
  EXPECT_EQ(whole.sharding, "");
  EXPECT_THAT(whole.notes, Contains(HasSubstr("FSDP2 (fully_shard) sums whole gradients")));
  const ImportedJob imported = import_job(whole);
  EXPECT_EQ(imported.workload.gradient_bytes(), 6000);
  EXPECT_EQ(imported.workload.current, "ddp");
  const Job split = fsdp_with("gloo:all_gather");
  EXPECT_THAT(split.sharding, HasSubstr("FSDP2 (fully_shard)"));
}

/// Three steps with gradients of 300,000 and 200,000 floats; sums as (elements, when they are asked
/// for). Forward runs from 0 to 100 us, backward to 300, the optimizer from 900.
Job job_with_sums(const std::vector<std::pair<long, double>>& sums) {
  std::vector<std::string> events;
  for (int s = 0; s < 3; ++s) {
    const double at = 1000.0 * s;
    events.push_back(step(s, at, 1000));
    events.push_back(op("aten::linear", at + 1, 100));
    events.push_back(gradient(300'000, at + 210));
    events.push_back(gradient(200'000, at + 310));
    double ran = 0;
    for (const auto& [elements, asked] : sums) {
      ran = std::max(ran, asked + 6);
      events.push_back(gloo_all_reduce(elements, at + asked, at + ran, 50));
      ran += 50;
    }
    events.push_back(optimizer_step(at + 900));
  }
  return job_of_texts({gloo_trace(0, 2, events), gloo_trace(1, 2, events)});
}

TEST(BucketsInUse, ThatAreAskedForAfterBackwardAreNotDdps) {
  const Job ddp = job_with_sums({{300'000, 215}, {200'000, 315}});
  EXPECT_EQ(import_job(ddp).workload.current, "ddp");
  const Job after = job_with_sums({{300'000, 320}, {200'000, 330}});
  EXPECT_EQ(import_job(after).workload.current, "");
  const auto plan = check_buckets(after);
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->matches_rule);
  EXPECT_THAT(plan->verdict, HasSubstr("2 exchanges, all asked for after the backward pass"));
}

TEST(BucketsInUse, HoldUnusedParametersUnderStaticGraph) {
  // 1.2 MB reach the first limit; the second bucket has 100,000 floats more than backward made.
  const auto plan = check_buckets(job_with_sums({{300'000, 215}, {300'000, 315}}));
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->matches_rule);
  EXPECT_EQ(plan->strategy, "ddp");
  EXPECT_THAT(plan->verdict, HasSubstr("400000 bytes of the buckets are of parameters that got no "
                                       "gradient"));
}

TEST(Sharding, ByTensorsSumsInForward) {
  const Job tensors = job_with_sums({{50'000, 50}, {50'000, 90}, {50'000, 150}, {50'000, 250}});
  EXPECT_THAT(tensors.sharding, HasSubstr("tensor parallelism"));
  // A loss, or statistics of a norm layer, are summed in forward of data parallelism, too.
  EXPECT_EQ(job_with_sums({{2'000, 50}, {300'000, 215}, {200'000, 315}}).sharding, "");
}

}  // namespace
}  // namespace linerate::trace
