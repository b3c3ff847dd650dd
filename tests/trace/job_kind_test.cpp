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

/// Two ranks that train models of so many floats a gradient in turn, in three steps: forward of
/// 50 us, 100 us a gradient, an exchange for each bucket (by number of gradients) behind it, an
/// update.
struct InTurn {
  struct Model {
    std::vector<long> gradients;
    std::vector<std::size_t> buckets;
  };
  std::vector<Model> models;
  bool updates_between = true, shapes = true;

  Job job() const {
    std::vector<std::string> events;
    for (int s = 0; s < 3; ++s) {
      const double begin = 10'000.0 * s;
      double at = begin + 10;
      for (std::size_t m = 0; m < models.size(); ++m) {
        events.push_back(op("aten::linear", at, 50));
        at += 60;
        std::size_t next = 0;
        for (const std::size_t in_bucket : models[m].buckets) {
          long sum = 0;
          for (std::size_t i = 0; i < in_bucket; ++i, at += 100) {
            sum += models[m].gradients[next];
            events.push_back(shapes ? gradient(models[m].gradients[next], at + 95)
                                    : gradient(at + 95));
            ++next;
          }
          events.push_back(gloo_all_reduce(sum, at - 3, at + 2, 40));
        }
        at += 45;
        if (updates_between || m + 1 == models.size()) events.push_back(optimizer_step(at));
        at += 20;
      }
      events.push_back(step(s, begin, 9'990));
    }
    return gloo_job(2, events);
  }
};

TEST(ModelsInTurn, AreCheckedByThemselves) {
  // A bucket closes at 1 MiB, then at 25 MiB: each model has one of 1.2 MB, and what is left.
  const InTurn::Model a{{300'000, 200'000, 1'000}, {1, 2}}, b{{10'000, 290'000, 7'000}, {2, 1}};
  const InTurn::Model small{{30'000, 1'000}, {2}}, large{{10'000'000, 300'000}, {1, 1}};
  for (const std::vector<InTurn::Model>& models : std::vector<std::vector<InTurn::Model>>{
           {a, b}, {b, a}, {a, a}, {small, large}, {small, small}, {a, b, small}}) {
    const InTurn in_turn{models};
    const Job job = in_turn.job();
    const auto plan = check_buckets(job);
    ASSERT_TRUE(plan);
    EXPECT_TRUE(plan->matches_rule);
    EXPECT_THAT(plan->verdict,
                HasSubstr(fmt::format("{} models are trained in turn", models.size())));
    EXPECT_THAT(plan->verdict, HasSubstr("each exactly DDP's rule: 1 MiB, then 25 MiB"));
    EXPECT_EQ(plan->strategy, "ddp");
    EXPECT_EQ(job.accumulation.passes, 1);
    std::vector<std::pair<int, std::int64_t>> expected, found;
    for (std::size_t m = 0; m < models.size(); ++m)
      for (const long n : models[m].gradients) expected.emplace_back(static_cast<int>(m), n);
    for (const GradientRecord& g : job.gradients) found.emplace_back(g.turn, g.elements);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(turns_of(job), static_cast<int>(models.size()));
    const ImportedJob imported = import_job(job);
    EXPECT_THAT(imported.note_with("No bucket holds gradients of two"), HasSubstr("in turn"));
    EXPECT_EQ(imported.workload.current, "ddp");
    found.clear();
    for (const doc::Gradient& g : imported.workload.gradients)
      found.emplace_back(g.turn, g.elements);
    EXPECT_EQ(found, expected);
    // Exchanges know their turn without shapes, too, but not what they carry.
    InTurn unknown = in_turn;
    unknown.shapes = false;
    EXPECT_EQ(turns_of(unknown.job()), static_cast<int>(models.size()));
    EXPECT_THROW(static_cast<void>(import_job(unknown.job())), InputError);
  }
}

TEST(ModelsInTurn, HaveOneCapIfOneFitsAll) {
  // 4 MiB for the first bucket, too: the second model is one bucket, as under any cap.
  const InTurn in_turn{{{{600'000, 500'000, 1'000}, {2, 1}}, {{30'000}, {1}}}};
  const auto plan = check_buckets(in_turn.job());
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->strategy, "ddp(bucket_cap_mb=4)");
}

TEST(ModelsInTurn, AreNeitherAccumulationNorUpdatesWithinBackward) {
  // One model, whose passes add up: nothing is updated between them.
  const InTurn::Model a{{300'000, 200'000}, {1, 1}};
  const Job passes = InTurn{.models = {a, a}, .updates_between = false}.job();
  EXPECT_EQ(passes.accumulation.passes, 2);
  EXPECT_EQ(turns_of(passes), 1);
  // An optimizer for each parameter, run as soon as its gradient is there.
  const Events within = in_steps(3, 1'000, [](int, double at) {
    Events events;
    for (const double ready : {at + 110, at + 210, at + 310})
      append(events, {gradient(1'000, ready), gloo_all_reduce(1'000, ready + 1, ready + 3, 5),
                      op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                         ready + 9, 20),
                      optimizer_step(ready + 9.5)});
    return events;
  });
  EXPECT_EQ(turns_of(gloo_job(2, within)), 1);
  // An optimizer that runs backward itself, as LBFGS does; recorded without shapes.
  const Events around = in_steps(3, 1'000, [](int, double at) {
    Events events = {host_event("user_annotation", "Optimizer.step#LBFGS.step", at + 5, 900)};
    for (const double ready : {at + 110, at + 310, at + 510})
      append(events, {gradient(ready), gloo_all_reduce(1'000, ready + 1, ready + 3, 5)});
    return events;
  });
  EXPECT_EQ(turns_of(gloo_job(2, around)), 1);
}

TEST(ModelsInTurn, OfOneBackwardPassAreTwoWhereOneRuleFitsNeither) {
  // Each has a bucket of 1.2 MB and the rest, which no one rule cuts so.
  const InTurn both{
      .models = {{{300'000, 100'000, 100'000, 50'000, 250'000, 100'000, 100'000, 100'000, 50'000},
                  {1, 2, 2, 4}}},
      .updates_between = false};
  const auto plan = check_buckets(both.job());
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->verdict, HasSubstr("two models in one backward pass, of 3 and 6 gradients"));
  EXPECT_EQ(plan->strategy, "");
}

}  // namespace
}  // namespace linerate::trace
