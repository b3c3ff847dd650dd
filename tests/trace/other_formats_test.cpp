#include <gmock/gmock.h>

#include <filesystem>

#include "linerate/core/error.hpp"
#include "linerate/trace/breakdown.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::HasSubstr;

constexpr const char* kHorovod =
    R"([{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":1700000000000000}},
{"name":"process_name","ph":"M","pid":7,"args":{"name":"Allreduce/layer4"}},
{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":2000,"pid":7},{"ph":"X","name":"0","ts":2004,"pid":7,"dur":0},
{"ph":"X","name":"1","ts":2310,"pid":7,"dur":0},{"ph":"E","ts":2312,"pid":7},{"ph":"B","name":"ALLREDUCE","ts":2315,"pid":7},
{"ph":"B","name":"NCCL_ALLREDUCE","ts":2350,"pid":7},{"ph":"E","ts":2790,"pid":7},
{"ph":"E","ts":2796,"pid":7,"args":{"dtype":"float32","shape":"[512, 512]"}},
{"ph":"B","name":"ALLREDUCE","ts":2315,"pid":8},{"ph":"B","name":"NCCL_ALLREDUCE","ts":2350,"pid":8},{"ph":"E","ts":2790,"pid":8},
{"ph":"E","ts":2796,"pid":8,"args":{"dtype":"float16","shape":"[100]"}},)";

TEST(Horovod, AnUnterminatedFusedBatchIsOneCollectiveWithItsBytesSummed) {
  const Job job = job_from(kHorovod);
  ASSERT_EQ(job.ranks.at(0).communications.size(), 1u);
  const Communication& c = job.ranks[0].communications[0];
  EXPECT_EQ(c.op, CommOp::all_reduce);
  EXPECT_EQ(c.bytes, 512 * 512 * 4 + 100 * 2);
  EXPECT_EQ(c.span.length(), 440'000);  // 2350..2790 us
  EXPECT_EQ(job.world_size, 2);         // largest tick name + 1
  EXPECT_THAT(job.notes, testing::Contains(HasSubstr("rank 1 was the last most often")));
  EXPECT_THAT(job.notes, testing::Contains(HasSubstr("holds no computation")));
}

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

TEST(Chakra, CountsDeviceCollectivesOnceAndSkipsTheHostsCopies) {
  const auto attribute = [](const char* name, int value_field, std::uint64_t v) {
    return field(10, field(1, std::string(name)) + field(value_field, v));
  };
  // comm_type 0 (all-reduce) is present because it sits in a one-of; id 0 is absent; seq_id -1 is a
  // ten-byte varint.
  const std::string device = field(2, std::string("ncclKernel")) + field(3, 7) + field(6, 1000) +
                             field(7, 50) + attribute("is_cpu_op", 27, 0) +
                             attribute("comm_type", 9, 0) + attribute("comm_size", 9, 4096) +
                             attribute("seq_id", 9, ~0ull);
  const std::string host = field(1, 1) + field(2, std::string("c10d::allreduce_")) + field(3, 7) +
                           attribute("is_cpu_op", 27, 1);
  const std::string text =
      message(field(1, std::string("0.0.4"))) + message(device) + message(host);
  const Job job = job_from(text, "job.3.et");
  ASSERT_EQ(job.ranks.at(0).communications.size(), 1u);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 4096);
  EXPECT_EQ(job.ranks[0].communications[0].span.length(), 50'000);
  EXPECT_EQ(job.ranks[0].rank, 3);
  const Job cut = job_from(text.substr(0, text.size() - 3), "job.3.et");
  EXPECT_THAT(cut.notes, testing::Contains(HasSubstr("ends early")));
}

TEST(Chakra, ReadsTheFeederForm) {
  const Job job = job_from(
      R"({"workload_graph": [{"Id": 1, "Name": "k", "NodeType": 4, "runtime": 7, "is_cpu_op": false}]})");
  EXPECT_EQ(job.ranks.at(0).compute.size(), 1u);
}

TEST(HostTrace, ReadsAttributesAndPositionalInputs) {
  const Job job = job_from(R"({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [
    {"id": 2, "name": "record_param_comms", "ctrl_deps": 1, "inputs": {"values": []}, "attrs": [
      {"name": "collective_name", "type": "string", "value": "allreduce"}, {"name": "dtype", "type": "string", "value": "Float"},
      {"name": "in_msg_nelems", "type": "uint64", "value": 100}, {"name": "out_msg_nelems", "type": "uint64", "value": 100},
      {"name": "pg_size", "type": "uint64", "value": 2}]},
    {"id": 3, "name": "record_param_comms", "ctrl_deps": 1, "inputs": {"values":
      [[[[9, 8, 0, 64, 4, "cuda:0"]]], 1, ["0", "default"], 0, "allreduce", [], [], 0, 1, 2]}, "attrs": []},
    {"id": 4, "name": "record_param_comms", "inputs": {"values": [[], 1, ["0", ""], 0, "wait", [], [], 0, 1, 2]}}]})");
  ASSERT_EQ(job.ranks.at(0).announced.size(), 2u);
  EXPECT_EQ(job.ranks[0].announced[0].bytes, 400);
  EXPECT_EQ(job.ranks[0].announced[1].bytes, 256);
  EXPECT_EQ(job.world_size, 2);
  EXPECT_FALSE(job.has_durations);
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
  EXPECT_EQ(format_of(doc::to_json(t)), Format::timeline);
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
