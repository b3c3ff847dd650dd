// What a job is comes from what it does: kernels of other libraries, kernels from before the
// recording, and annotations of libraries that split nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/job/periods.hpp"
#include "trace/kineto_text.hpp"
#include "trace/synthetic_job.hpp"

namespace linerate::trace {
namespace {

using testing::HasSubstr;

TEST(KernelNames, OfEveryLibraryThatCommunicatesAreKnown) {
  using enum Communicates;
  using enum CommOp;
  struct Case {
    const char* name;
    Communicates communicates;
    CommOp op;
  };
  const std::vector<Case> cases = {
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", yes, all_reduce},
      {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", yes, unknown},
      {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", yes, all_reduce},
      {"void aiter::cross_device_reduce_2stage<float, 8>()", yes, all_reduce},
      {"multimem_all_reduce_kernel<c10::BFloat16>", yes, all_reduce},
      {"multimem_all_gather_kernel<16>", yes, all_gather},
      {"one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>", yes, all_reduce},
      {"two_shot_all_reduce_kernel_inplace<float>", yes, all_reduce},
      {"flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float>", yes,
       all_reduce},
      {"tensorrt_llm::kernels::oneShotAllReduceKernel<float, 2>", yes, all_reduce},
      {"mscclpp::allreduce7<float>", yes, all_reduce},
      {"oneccl_allreduce_pcie<float>", yes, all_reduce},
      {"oneccl_reduce_base<float, 2, 16, 1, 1, 2>", yes, unknown},
      {"deep_ep::internode_ll::dispatch<true>", yes, all_to_all},
      {"my_own_allreduce_kernel", maybe, unknown},
      {"void lamport_style_sum<float>", maybe, unknown},
      {"aten::all_reduce", no, unknown},
      {"void at::native::reduce_kernel<512, 1>", no, unknown},
      {"sm90_xmma_gemm_bf16bf16_bf16f32", no, unknown}};
  for (const Case& c : cases) {
    const std::string low = lowered(c.name);
    EXPECT_EQ(kernel_communicates(low), c.communicates) << c.name;
    if (c.communicates == Communicates::yes) {
      EXPECT_EQ(op_of_kernel_name(low), c.op) << c.name;
    }
  }
}

/// The device was still at `before` when the recording began, and a copy ran earlier.
std::string with_before(std::string trace, const std::string& before) {
  const std::string events = "\"traceEvents\":[";
  const std::string copy =
      R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":9,"ts":1000001,"dur":5,)"
      R"("args":{"stream":9,"correlation":1}},)";
  return trace.insert(trace.find(events) + events.size(),
                      copy + kernel(before, 1'000'010, 50, R"("correlation":999999)", 20) + ",");
}

TEST(KernelsFromBefore, OfBeforeTheRecordingBelongToNoStep) {
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

}  // namespace
}  // namespace linerate::trace
