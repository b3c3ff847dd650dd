#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "support/says.hpp"
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

doc::Workload read(const std::string& text, const PerGradientOptions& options = {}) {
  InputFile input = InputFile::from_memory(text, "net.bk.log");
  return read_per_gradient_log(input, options);
}

TEST(PerGradientLog, AddsWaitsUpAndAveragesOverBatches) {
  // Batch 1 waits 10, 20 us; batch 2 waits 30, 40 us: means 20 and 30, so ready at 20 and 50 us.
  const doc::Workload w = read("prose\n2\n2\n10,400\n20,8\n30,400\n40,8\n");
  ASSERT_EQ(w.gradients.size(), 2u);
  EXPECT_NEAR(w.gradients[0].ready_s, 20e-6, 1e-15);
  EXPECT_NEAR(w.gradients[1].ready_s, 50e-6, 1e-15);
  EXPECT_NEAR(w.backward_s, 50e-6, 1e-15);
  EXPECT_EQ(w.gradients[0].elements, 100);
  EXPECT_EQ(w.gradients[0].registration, 1);  // written in reverse registration order
  EXPECT_FALSE(w.step_s.has_value());
}

TEST(PerGradientLog, StepTimeOfForwardAndBackwardLeavesTheUpdateUnknown) {
  const doc::Workload w = read("prose\n1\n1\n100,4\n",
                               {.step_time_s = 300e-6, .covers = StepTimeCovers::forward_backward});
  EXPECT_NEAR(*w.forward_s, 200e-6, 1e-12);
  EXPECT_FALSE(w.step_s || w.update_s);
}

TEST(PerGradientLog, NamesTheLineThatIsWrong) {
  for (const auto& [text, words] :
       {std::pair{"1\n2\n10,400\nten,8\n", "net.bk.log:5: expected \"wait_us,bytes\""},
        {"1\n3\n10,400\n", "cut off"},
        {"1\n1\n10,401\n", "multiple of 4"},
        {"many\n1\n", ":2: expected the number of batches"}})
    EXPECT_THAT(refusal_of([&] { read(std::string("prose\n") + text); }), HasSubstr(words));
}

TEST(PerGradientLog, IsToldFromItsFirstFourLines) {
  EXPECT_TRUE(is_per_gradient_log("prose, with commas\n1\n161\n12.5,400\n"));
  EXPECT_FALSE(is_per_gradient_log("# Size  Latency\n1 2.0\n2 2.0\n"));
}

TEST(AddCost, MustAscend) {
  InputFile good = InputFile::from_memory("40,1e-5\n80,9e-6\n", "add.log");
  EXPECT_EQ(read_add_cost(good).size(), 2u);
  InputFile bad = InputFile::from_memory("80,1e-5\n40,9e-6\n", "add.log");
  EXPECT_THROW(read_add_cost(bad), InputError);
}

// ---- Chakra ----

std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out + static_cast<char>(v);
}
std::string field(int number, std::uint64_t v) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(v);
}
std::string field(int number, const std::string& s) {
  return varint((static_cast<std::uint64_t>(number) << 3) | 2) + varint(s.size()) + s;
}
std::string message(const std::string& s) { return varint(s.size()) + s; }
std::string attribute(const char* name, int value_field, std::uint64_t v) {
  return field(10, field(1, std::string(name)) + field(value_field, v));
}
std::string attribute(const char* name, const std::string& v) {
  return field(10, field(1, std::string(name)) + field(29, v));
}
std::string head(const std::string& version = "0.0.4") { return message(field(1, version)); }

/// A device collective of type `comm_type` in group "1", from `start` us.
std::string collective_node(int comm_type, std::uint64_t bytes, std::uint64_t start,
                            std::uint64_t us) {
  return message(field(2, std::string("ncclKernel")) + field(3, 7) + field(6, start) +
                 field(7, us) + attribute("is_cpu_op", 27, 0) +
                 attribute("comm_type", 9, static_cast<std::uint64_t>(comm_type)) +
                 attribute("comm_size", 9, bytes) + attribute("pg_name", std::string("1")) +
                 attribute("seq_id", 9, ~0ull));
}

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

TEST(Chakra, RanksOfOneJobAreJoinedByTheirGroups) {
  // Groups {0, 1} and {2, 3} have one name each; all-gathers state 100 bytes a rank, 200 in all.
  // Rank 1 arrives 30 us late at its all-reduce and moves for 20.
  const auto rank = [](std::uint64_t start, std::uint64_t us) {
    return head() + collective_node(0, 4096, start, us) + collective_node(2, 100, 1000, 10);
  };
  const Job job = job_of_files({{"job.1.et", rank(130, 20)},
                                {"job.0.et", rank(100, 50)},
                                {"groups.json", R"({"1": [0, 1], "2": [2, 3]})"}});
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_EQ(job.ranks[0].rank, 0);
  EXPECT_EQ(job.world_size, 4);
  const Breakdown b = break_down(job);
  ASSERT_EQ(b.collectives.size(), 2u);
  EXPECT_NEAR(*b.collectives[0].transfer_s, 20e-6, 1e-12);
  EXPECT_NEAR(*b.collectives[0].skew_s, 30e-6, 1e-12);
  EXPECT_EQ(b.collectives[0].last_rank, 1);
  EXPECT_EQ(b.collectives[1].bytes, 200);
  EXPECT_TRUE(b.ranks_missing);  // 2 of 4
}

TEST(Chakra, WithoutGroupsTotalsOfAllGathersAreUnknownAndSaid) {
  const Job job = job_from(head() + collective_node(2, 100, 0, 10), "job.0.et");
  EXPECT_EQ(job.ranks.at(0).communications.at(0).bytes, -1);
  EXPECT_THAT(job.notes, says("give the JSON of process groups too"));
}

TEST(Chakra, RanksThatCannotBeToldApartAndBadGroupsAreErrors) {
  const std::string text = head() + collective_node(0, 8, 0, 10);
  const auto message_of = [](const Texts& files) {
    return refusal_of([&] { job_of_files(files); });
  };
  EXPECT_THAT(message_of({{"a.et", text}, {"b.et", text}}),
              HasSubstr("a.et: expected its rank in"));
  EXPECT_THAT(message_of({{"a.1.et", text}, {"b.1.et", text}}),
              HasSubstr("is of rank 1, and so is"));
  EXPECT_THAT(message_of({{"a.0.et", text}, {"groups.json", R"({"1": [0, -1]})"}}),
              HasSubstr("groups.json: /1: expected a list of ranks, found [0,-1]"));
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

TEST(Chakra, WithoutDurationsNoTimeIsKnownAndNobodyIsLast) {
  const auto rank = [](const char* name) {
    return std::pair<std::string, std::string>(name, head() + collective_node(0, 4096, 0, 0));
  };
  const Breakdown b = break_down(job_of_files({rank("job.0.et"), rank("job.1.et")}));
  ASSERT_TRUE(b.times_unknown);
  const std::string json = explain_json(b, judge(b));
  for (const char* key : {"compute_busy_s", "communication_busy_s", "duration_s", "transfer_s",
                          "skew_s", "last_rank", "times_last", "delay_per_step_s"})
    EXPECT_THAT(json, HasSubstr(fmt::format("\"{}\": null", key)));
}

}  // namespace
}  // namespace linerate::trace
