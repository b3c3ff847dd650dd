#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "support/says.hpp"
#include "trace/chakra_text.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

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
    EXPECT_THAT(job.notes, says("begins again 1 times")) << before;
  }
}

TEST(Timeline, KeepsGroupsWhateverTheirNames) {
  Job job;
  job.world_size = 8;
  job.groups = {"stage 2 of 4 ranks in pod 1", "tp"};
  job.ranks.resize(1);
  for (const auto& [op, group, size] : {std::tuple{CommOp::reduce, 0, 4},
                                        {CommOp::all_reduce, 1, 2},
                                        {CommOp::barrier, -1, 2},
                                        {CommOp::all_reduce, -1, 8}})
    job.ranks[0].communications.push_back(
        {.span = {0, 10}, .op = op, .group = group, .group_size = size, .bytes = 4});
  const doc::Timeline document = doc::timeline_from_json(doc::to_json(timeline_of(job, "x")), "x");
  const Job back = job_of(document);
  ASSERT_EQ(back.ranks.at(0).communications.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const Communication& a = job.ranks[0].communications[i];
    const Communication& b = back.ranks[0].communications[i];
    EXPECT_EQ(b.op, a.op);
    EXPECT_EQ(b.group_size, a.group_size);
    const auto name = [](const Job& j, const Communication& c) {
      return c.group < 0 ? "none" : j.groups.at(std::size_t(c.group));
    };
    EXPECT_EQ(name(back, b), name(job, a));
  }
}

// ---- Timelines that name their device ----

constexpr std::int64_t kUs = 1000;

/// Two ranks compute for 1 ms and add their gradients, which ends this much later on rank 1 in one
/// step of three: in all of them, its clock would be off.
doc::Timeline timeline_of_ranks(const std::string& device, std::int64_t end_later_ns) {
  doc::Timeline t;
  t.mode = "trained";
  t.ranks = 2;
  t.device = device;
  t.names = {"all-reduce"};
  for (std::int32_t rank = 0; rank < 2; ++rank)
    for (std::int32_t step = 0; step < 3; ++step) {
      const std::int64_t begin = 10'000 * kUs * step;
      t.steps.push_back({rank, step, begin, begin + 9000 * kUs, "steady"});
      t.events.push_back({.kind = doc::TaskKind::backward,
                          .resource = doc::Resource::compute,
                          .rank = rank,
                          .step = step,
                          .start_ns = begin,
                          .end_ns = begin + 1000 * kUs});
      t.events.push_back({.kind = doc::TaskKind::all_reduce,
                          .resource = doc::Resource::network,
                          .rank = rank,
                          .step = step,
                          .name = 0,
                          .ready_ns = begin + 1000 * kUs,
                          .start_ns = begin + 1000 * kUs,
                          .end_ns = begin + 3000 * kUs + (step == 1 ? rank * end_later_ns : 0),
                          .bytes = 4096});
    }
  return t;
}

Breakdown broken_down(const std::string& device, std::int64_t end_later_ns) {
  return break_down(job_of(timeline_of_ranks(device, end_later_ns)));
}

/// Threads wake late: on processors the end of a sum may lie 3 ms apart, on devices a tenth of it.
TEST(TimelineOfADevice, IsHeldToItsCollectives) {
  const auto diverge = HasSubstr("collectives end at different times");
  for (const char* processors : {"", "cpu"}) {
    const Breakdown b = broken_down(processors, 500 * kUs);
    EXPECT_TRUE(b.cpu_device);
    EXPECT_THAT(b.notes, Not(Contains(diverge)));
    EXPECT_THAT(explain_text(b, {}), HasSubstr("the CPU is the device"));
  }
  for (const char* device : {"cuda", "xpu", "something new"}) {
    const Breakdown b = broken_down(device, 500 * kUs);
    EXPECT_FALSE(b.cpu_device) << device;
    EXPECT_THAT(b.notes, Contains(diverge)) << device;
    EXPECT_THAT(broken_down(device, 50 * kUs).notes, Not(Contains(diverge))) << device;
    EXPECT_THAT(explain_text(b, {}), HasSubstr(std::string("the device is ") + device));
  }
}

/// What `import --timeline` makes of it says it, too.
TEST(TimelineOfADevice, StaysOneWhenItIsImported) {
  const doc::Timeline back = timeline_of(job_of(timeline_of_ranks("xpu", 0)), "run.json");
  EXPECT_EQ(back.device, "xpu");
  EXPECT_EQ(timeline_of(job_of(timeline_of_ranks("", 0)), "run.json").device, "");
  EXPECT_FALSE(job_of(back).cpu_device);
}

// ---- logs of each gradient ----

TEST(PerGradientLog, StepTimeOfForwardAndBackwardLeavesTheUpdateUnknown) {
  InputFile log = InputFile::from_memory("prose\n1\n1\n100,4\n", "net.bk.log");
  const doc::Workload w = read_per_gradient_log(
      log, {.step_time_s = 300e-6, .covers = StepTimeCovers::forward_backward});
  EXPECT_NEAR(*w.forward_s, 200e-6, 1e-12);
  EXPECT_FALSE(w.step_s || w.update_s);
}

TEST(PerGradientLog, SaysWhichCountItExpects) {
  InputFile log = InputFile::from_memory("prose\nmany\n1\n", "net.bk.log");
  EXPECT_THAT(refusal_of([&] { read_per_gradient_log(log); }),
              HasSubstr(":2: expected the number of batches"));
}

TEST(AddCost, MustAscend) {
  InputFile good = InputFile::from_memory("40,1e-5\n80,9e-6\n", "add.log");
  EXPECT_EQ(read_add_cost(good).size(), 2u);
  InputFile bad = InputFile::from_memory("80,1e-5\n40,9e-6\n", "add.log");
  EXPECT_THROW(read_add_cost(bad), InputError);
}

// ---- Chakra ----

using chakra::attribute;
using chakra::collective_node;
using chakra::field;
using chakra::head;
using chakra::message;
using chakra::varint;

TEST(Chakra, CountsDeviceCollectivesOnceAndSkipsTheHostsCopies) {
  // comm_type 0 (all-reduce) is present because it sits in a one-of; id 0 is absent; seq_id -1 is a
  // ten-byte varint.
  const std::string host = field(1, 1) + field(2, std::string("c10d::allreduce_")) + field(3, 7) +
                           attribute("is_cpu_op", 27, 1);
  const std::string text = head() + collective_node(0, 4096, 1000, 50) + message(host);
  const Job job = job_from(text, "job.3.et");
  ASSERT_EQ(job.ranks.at(0).communications.size(), 1u);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 4096);
  EXPECT_EQ(job.ranks[0].communications[0].span.length(), 50'000);
  EXPECT_EQ(job.ranks[0].rank, 3);
  const Job cut = job_from(text.substr(0, text.size() - 3), "job.3.et");
  EXPECT_THAT(cut.notes, says("ends early at byte"));
}

TEST(Chakra, FixedNumbersAndFloatsAreAttributesToo) {
  const auto fixed64 = [](int number, std::uint64_t v) {
    std::string out = varint((static_cast<std::uint64_t>(number) << 3) | 1);
    for (int i = 0; i < 8; ++i) out += static_cast<char>(v >> (8 * i));
    return out;
  };
  const std::string node =
      field(3, 7) + attribute("is_cpu_op", 27, 0) + attribute("comm_type", 9, 7) +
      field(10, field(1, std::string("comm_size")) + fixed64(21, 1 << 20)) +
      field(10, field(1, std::string("weight")) + fixed64(3, 0x3ff0000000000000));
  const Job job = job_from(head() + message(node), "a.0.et");
  EXPECT_EQ(job.ranks.at(0).communications.at(0).op, CommOp::reduce_scatter);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 1 << 20);
}

TEST(Chakra, AnotherSchemaIsNamedWhereHostAndDeviceCannotBeToldApart) {
  EXPECT_THAT(
      refusal_of([] { job_from(head("0.0.1") + message(field(1, 1) + field(3, 7)), "old.0.et"); }),
      testing::AllOf(HasSubstr("old.0.et: schema \"0.0.1\": no node has attributes"),
                     HasSubstr("expected schema 0.0.4")));
}

}  // namespace
}  // namespace linerate::trace
