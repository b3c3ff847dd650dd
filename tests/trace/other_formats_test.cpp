#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::HasSubstr;

/// One tensor's all-reduce: top level and NCCL activity from `begin` to `end`, 1000 floats.
std::string reduced(int pid, int begin, int end) {
  return fmt::format(
      R"({{"ph":"B","name":"ALLREDUCE","ts":{0},"pid":{2}}},{{"ph":"B","name":"NCCL_ALLREDUCE",)"
      R"("ts":{0},"pid":{2}}},)"
      R"({{"ph":"E","ts":{1},"pid":{2}}},{{"ph":"E","ts":{1},"pid":{2},"args":{{"dtype":"float32",)"
      R"("shape":"[1000]"}}}},)",
      begin, end, pid);
}

TEST(Horovod, AWriterThatBeginsAnewAppendsItsRun) {
  // Wherever the first run was cut, the whole exchanges of both count, one run behind the other.
  const std::string run = "[\n" + reduced(1, 100, 500) + "\n" + reduced(2, 600, 900) + "\n";
  const std::size_t first = run.find("\n", 2) + 1;  // behind one whole exchange
  for (std::size_t cut = first; cut <= run.size(); ++cut) {
    const std::string before = run.substr(0, cut);
    const std::size_t whole = job_from(before).ranks.at(0).communications.size();
    const Job job = job_from(before + "\n" + run + R"({"ph":"M","name":"end","pid":1}])");
    const auto& all = job.ranks.at(0).communications;
    ASSERT_EQ(all.size(), whole + 2) << before;
    EXPECT_GE(all[whole].span.start_ns, all[whole - 1].span.end_ns) << before;
    EXPECT_THAT(job.notes, testing::Contains(HasSubstr("begins again 1 times"))) << before;
  }
  // A list that was closed, and clocks that say how far apart the runs are.
  const auto at = [&](const char* us) {
    return std::string(
               R"([{"ph":"M","name":"start","pid":0,"args":{"start_time_since_epoch_in_micros":)") +
           us + "}}," + reduced(1, 100, 500) + R"({"ph":"M","name":"end","pid":1}])";
  };
  const Job job = job_from(at("1700000000000000") + "\n" + at("1700000009000000"));
  const auto& all = job.ranks.at(0).communications;
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].span.start_ns - all[0].span.start_ns, 9'000'000'000);
}

TEST(Timeline, GoesThroughTheDocumentAndBack) {
  const Job job =
      job_from(trace_of(0, 2,
                        {step(3, 0, 100), kernel("gemm", 0, 40),
                         kernel("ncclKernel_AllReduce", 20, 50, collective("allreduce", 10, 2))}));
  const doc::Timeline t = timeline_of(job, "trace.json");
  const Breakdown a = break_down(job), b = break_down(job_of(t));
  EXPECT_DOUBLE_EQ(a.whole.exposed_s, b.whole.exposed_s);
  EXPECT_EQ(a.collective_bytes, b.collective_bytes);
  EXPECT_EQ(t.steps.at(0).index, 3);
  EXPECT_EQ(recognise(doc::to_json(t)).importer->name, "linerate Timeline");
}

TEST(Timeline, KeepsGroupsWhateverTheirNames) {
  Job job;
  job.world_size = 8;
  job.groups = {"stage 2 of 4 ranks in pod 1", "tp"};
  job.ranks.resize(1);
  const auto add = [&job](CommOp op, std::int32_t group, std::int32_t size) {
    job.ranks[0].communications.push_back(
        {.span = {0, 10}, .op = op, .group = group, .group_size = size, .bytes = 4});
  };
  add(CommOp::reduce, 0, 4);
  add(CommOp::all_reduce, 1, 2);
  add(CommOp::barrier, -1, 2);
  add(CommOp::all_reduce, -1, 8);
  const doc::Timeline document = doc::timeline_from_json(doc::to_json(timeline_of(job, "x")), "x");
  const Job back = job_of(document);
  ASSERT_EQ(back.ranks.at(0).communications.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const Communication& a = job.ranks[0].communications[i];
    const Communication& b = back.ranks[0].communications[i];
    EXPECT_EQ(b.op, a.op);
    EXPECT_EQ(b.group_size, a.group_size);
    ASSERT_EQ(b.group >= 0, a.group >= 0);
    if (a.group >= 0) {
      EXPECT_EQ(back.groups[std::size_t(b.group)], job.groups[std::size_t(a.group)]);
    }
  }
}

TEST(Timeline, OfAnOwnRunGivesScalingFactorAndUtilisation) {
  doc::Timeline t;
  t.mode = "trained";
  t.ranks = 1;
  t.one_rank_step_s = 0.8e-3;
  t.line_rate_bytes_per_s = 1e9;
  t.steps = {{.rank = 0, .index = 0, .start_ns = 0, .end_ns = 1'000'000, .variant = ""}};
  t.events = {{.kind = doc::TaskKind::backward, .start_ns = 0, .end_ns = 900'000}};
  t.counters = {{.name = "nic_sent_bytes_per_s",
                 .rank = 0,
                 .period_s = 0.1,
                 .samples = {{0, 1e8}, {1, 3e8}}}};
  const Breakdown b = break_down(job_of(t));
  EXPECT_NEAR(*b.scaling_factor, 0.8, 1e-12);
  EXPECT_NEAR(*b.utilisation_step, 0.2, 1e-12);
}

}  // namespace
}  // namespace linerate::trace
