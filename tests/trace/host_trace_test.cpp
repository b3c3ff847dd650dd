#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/trace/explain/breakdown.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/read_job.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;

Job host_job_of_files(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<InputFile> inputs;
  for (const auto& [name, text] : files) inputs.push_back(InputFile::from_memory(text, name));
  return read_job(inputs);
}

std::string host_node(int rf_id, int elements) {
  return fmt::format(
      R"({{"id":1,"name":"record_param_comms","inputs":{{"values":[]}},"attrs":[{{"name":"rf_id","value":{}}},{{"name":"collective_name","value":"allreduce"}},)"
      R"({{"name":"dtype","value":"Float"}},{{"name":"in_msg_nelems","value":{}}},{{"name":"out_msg_nelems","value":{}}},)"
      R"({{"name":"pg_size","value":2}},{{"name":"pg_name","value":"0"}},{{"name":"global_rank_start","value":0}},{{"name":"global_rank_stride","value":1}}]}})",
      rf_id, elements, elements);
}
std::string host_trace(const std::vector<std::string>& nodes) {
  return fmt::format(R"({{"schema":"1.1.1-chakra.0.0.4","pid":1,"nodes":[{}]}})",
                     fmt::join(nodes, ","));
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
  ASSERT_EQ(job.ranks.at(0).communications.size(), 2u);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 400);
  EXPECT_EQ(job.ranks[0].communications[1].bytes, 256);
  EXPECT_EQ(job.world_size, 2);
  EXPECT_EQ(job.ranks[0].rank, 0);  // the input before the name
  EXPECT_FALSE(job.has_durations);
  EXPECT_THAT(job.notes, Contains(HasSubstr("has no durations")));
}

TEST(HostTrace, AloneIsAListOfCollectivesOfAllItsRanks) {
  const std::string text = host_trace({host_node(7, 100), host_node(8, 5000)});
  const Breakdown b = break_down(host_job_of_files({{"rank0.json", text}, {"rank1.json", text}}));
  ASSERT_EQ(b.collectives.size(), 2u);  // the same two on both ranks
  EXPECT_EQ(b.collectives[0].bytes, 400);
  EXPECT_EQ(b.collectives[1].bytes, 20'000);
  EXPECT_EQ(b.collectives[1].ranks, 2);
  EXPECT_TRUE(b.times_unknown);
  EXPECT_EQ(b.collective_bytes, 20'400);
}

TEST(HostTrace, ReadsTheFlatNodesOfSchema101) {
  // An all-gather's total is its output: 2 x 64 halves.
  const Job job = job_from(R"({"schema": "1.0.1", "nodes": [{"id": 3, "rf_id": 9, "parent": 1,
    "name": "record_param_comms", "input_shapes": [], "input_types": [],
    "inputs": [[[9, 8, 0, 64, 2, "cuda:0"]], 1, 0, "_allgather_base", [], [], 0, 1, 2],
    "outputs": [[10, 8, 0, 128, 2, "cuda:0"]]}]})");
  ASSERT_EQ(job.ranks.at(0).communications.size(), 1u);
  EXPECT_EQ(job.ranks[0].communications[0].op, CommOp::all_gather);
  EXPECT_EQ(job.ranks[0].communications[0].bytes, 256);
}

/// Two all-reduces whose operations have ids and no sizes, with their kernels.
std::string without_sizes(int rank, const char* key, int first_id) {
  std::vector<std::string> events;
  for (int k = 0; k < 2; ++k) {
    events.push_back(fmt::format(
        R"({{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":9,"ts":{},"dur":8,"args":{{"External id":{},"{}":{}}}}})",
        100 * k, 40 + k, key, first_id + 20 * k));
    events.push_back(kernel("ncclDevKernel_AllReduce", 100 * k + 5, 10,
                            fmt::format(R"("External id":{},"correlation":{})", 40 + k, 900 + k)));
  }
  return trace_of(rank, 2, events);
}

TEST(HostTrace, GivesSizesToTheKinetoTraceOfItsRank) {
  const Breakdown b = break_down(
      host_job_of_files({{"et_rank0.json", host_trace({host_node(70, 100), host_node(90, 200)})},
                         {"trace_rank0.json", without_sizes(0, "Record function id", 70)}}));
  EXPECT_EQ(b.collective_bytes, 1200);  // (100 + 200) x 4, stated and not deduced
  ASSERT_EQ(b.collectives.size(), 2u);
  EXPECT_EQ(b.collectives[0].bytes, 400);
  EXPECT_EQ(b.collectives[0].ranks, 2);
  EXPECT_THAT(b.notes, Contains(HasSubstr("2 of 2 collectives joined to trace_rank0.json")));
}

TEST(HostTrace, IdsAtAConstantDistanceAreJoinedAndSaid) {
  // pytorch#122833: the host's ids are 1000 above the trace's 70 and 90; the host began one
  // collective earlier.
  const Breakdown b = break_down(host_job_of_files(
      {{"et.json", host_trace({host_node(1011, 1), host_node(1070, 100), host_node(1090, 200)})},
       {"trace.json", without_sizes(0, "Record function id", 70)}}));
  EXPECT_THAT(b.notes, Contains(HasSubstr("(ids differ by 1000, pytorch#122833)")));
  EXPECT_EQ(b.collective_bytes, 1200);
  // Ids that fit at two distances are no evidence for either.
  const Breakdown twice = break_down(host_job_of_files(
      {{"et.json", host_trace({host_node(1050, 1), host_node(1070, 100), host_node(1090, 200)})},
       {"trace.json", without_sizes(0, "Record function id", 70)}}));
  EXPECT_FALSE(twice.collective_bytes);
  EXPECT_THAT(twice.notes, Contains(HasSubstr("not joined")));
}

TEST(HostTrace, OfAnotherRunIsNotJoinedAndSaid) {
  const std::string broadcast = R"({"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,)"
                                R"("tid":9,"ts":1,"dur":8,"args":{"Record function id":5,)" +
                                collective("broadcast", 8, 2) + "}}";
  const Job job = host_job_of_files(
      {{"et.json", host_trace({host_node(70, 1)})}, {"trace.json", trace_of(0, 2, {broadcast})}});
  EXPECT_THAT(job.notes, Contains(HasSubstr("only 0 of 1 collectives have the id")));
}

TEST(HostTrace, SeveralRanksAreJoinedByTheirNames) {
  const auto host = host_trace({host_node(70, 100), host_node(90, 200)});
  const Breakdown b =
      break_down(host_job_of_files({{"et_rank1.json", host},
                                    {"et_rank0.json", host},
                                    {"a.json", without_sizes(0, "Record function id", 70)},
                                    {"b.json", without_sizes(1, "Record function id", 70)}}));
  ASSERT_EQ(b.collectives.size(), 2u);
  EXPECT_TRUE(b.collectives[0].transfer_s);  // both ranks are there and agree
  try {
    host_job_of_files(
        {{"et_rank5.json", host}, {"a.json", without_sizes(0, "Record function id", 70)}});
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("et_rank5.json: a host execution trace of rank 5, but no "
                                    "PyTorch trace of that rank is here"));
  }
}

}  // namespace
}  // namespace linerate::trace
