// What the arguments of collectives say: groups, keys across ranks, uneven splits, names of every
// kind.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/explain/explanation.hpp"
#include "linerate/explain/program.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kKernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)";
constexpr const char* kSendRecv = "ncclDevKernel_SendRecv(ncclDevComm*)";

/// A collective kernel of a group given by name and list, as "Process Group Ranks" has it.
std::string in_group(const std::string& list, double ts, const std::string& more = "",
                     int ranks = 2) {
  return kernel(kKernel, ts, 10,
                fmt::format(R"("Collective name":"allreduce","In msg nelems":8,"Out msg nelems":8,)"
                            R"("Group size":{},"dtype":"Float","Process Group Name":"1",)"
                            R"("Process Group Ranks":"{}"{})",
                            ranks, list, more));
}

TEST(Match, GroupsOfOneNameAreToldApartByTheirRanks) {
  // Two tensor-parallel groups, both "1": ranks 0 and 1, ranks 2 and 3.
  std::vector<std::string> texts;
  for (int r = 0; r < 4; ++r)
    texts.push_back(trace_of(r, 4, {in_group(r < 2 ? "[0, 1]" : "[2, 3]", 0)}));
  const MatchResult m = match_collectives(job_of_ranks(texts));
  ASSERT_EQ(m.collectives.size(), 2u);
  EXPECT_TRUE(m.collectives[0].complete && m.collectives[1].complete);
  EXPECT_THAT(m.notes, testing::IsEmpty());
}

TEST(Match, GroupsWithoutAListComeFromTheHeadOfTheTrace) {
  // No "Process Group Ranks" on the kernels (before 2.4): pg_config has them, behind the events.
  const auto text = [](int rank, const char* ranks) {
    return fmt::format(
        R"({{"traceEvents":[{}],"distributedInfo":{{"rank":{},"world_size":4,"pg_config":[)"
        R"({{"uid":"1","pg_size":2,"ranks":{}}}]}}}})",
        in_group("", 0), rank, ranks);
  };
  const Job job = job_of_ranks(
      {text(0, "[0, 1]"), text(1, "\"[0, 1]\""), text(2, "[2, 3]"), text(3, "[2, 3]")});
  EXPECT_THAT(job.groups, testing::UnorderedElementsAre("1 (ranks 0, 1)", "1 (ranks 2, 3)"));
  const MatchResult m = match_collectives(job);
  ASSERT_EQ(m.collectives.size(), 2u);
  EXPECT_TRUE(m.collectives[0].complete);
}

TEST(Match, ACommunicationIdUpTo2To64JoinsRanksThatSkippedOne) {
  // Rank 1's trace begins one collective later: counting would pair the wrong ones.
  const auto id = [](const char* n) { return fmt::format(R"(,"Comms Id":{})", n); };
  const MatchResult m = match_collectives(
      job_of_ranks({trace_of(0, 2,
                             {in_group("[0, 1]", 0, id("17")),
                              in_group("[0, 1]", 50, id("18446744073709551615"))}),
                    trace_of(1, 2, {in_group("[0, 1]", 50, id("18446744073709551615"))})}));
  ASSERT_EQ(m.collectives.size(), 2u);
  EXPECT_FALSE(m.collectives[0].complete);
  EXPECT_EQ(m.collectives[1].members.size(), 2u);
}

TEST(Match, SendsAndReceivesNeverStopTheirGroup) {
  // Rank 0 sends, rank 1 receives, rank 2 does neither; the all-reduce behind them is matched.
  const auto p2p = [](const char* what) {
    return kernel(kSendRecv, 0, 5, collective(what, 16, 3, R"("Seq":1)"));
  };
  const std::string all = kernel(kKernel, 50, 10, collective("allreduce", 16, 3));
  const MatchResult m =
      match_collectives(job_of_ranks({trace_of(0, 3, {p2p("send"), all}),
                                      trace_of(1, 3, {p2p("recv"), all}), trace_of(2, 3, {all})}));
  ASSERT_EQ(m.collectives.size(), 3u);
  EXPECT_EQ(m.collectives[2].members.size(), 3u);
  EXPECT_TRUE(m.collectives[2].complete);
  EXPECT_THAT(m.notes, testing::IsEmpty());
}

TEST(Match, WhatOneRankDoesNotStateContradictsNobody) {
  const MatchResult m = match_collectives(
      job_of_ranks({trace_of(0, 2, {kernel(kKernel, 0, 10, collective("allreduce", 8, 2))}),
                    trace_of(1, 2,
                             {kernel("ncclDevKernel_Generic", 0, 10,
                                     R"("Collective name":"allreduce","In msg nelems":8,)"
                                     R"("Group size":2,"Process Group Name":"0")")})}));
  ASSERT_EQ(m.collectives.size(), 1u);
  EXPECT_TRUE(m.collectives[0].complete);
}

std::string all_to_all(int in, int out, const char* in_splits, const char* out_splits,
                       int ranks = 2) {
  return kernel(
      kSendRecv, 0, 10,
      fmt::format(R"("Collective name":"all_to_allv","In msg nelems":{},"Out msg nelems":{},)"
                  R"("Group size":{},"dtype":"Float","In split size":"{}","Out split size":"{}",)"
                  R"("Process Group Name":"0")",
                  in, out, ranks, in_splits, out_splits));
}

TEST(AllToAll, UnevenSplitsLeaveOutTheRanksOwnPart) {
  // Rank 0 sends 100 to itself and 300 to rank 1, receives 100 and 100: 300 floats cross the
  // network. Rank 1 sends 100 and 50 to itself: receives 300 of 350. Bus bytes 1200 in 10 us.
  const Breakdown b =
      break_down(job_of_ranks({trace_of(0, 2, {all_to_all(400, 200, "[100, 300]", "[100, 100]")}),
                               trace_of(1, 2, {all_to_all(150, 350, "[100, 50]", "[300, 50]")})}));
  ASSERT_EQ(b.collectives.size(), 1u);  // sizes differ between ranks and yet it is one
  EXPECT_EQ(b.collectives[0].bytes, 1600);
  EXPECT_NEAR(*b.collectives[0].busbw_bytes_per_s, 1200 / 10e-6, 1);
}

TEST(AllToAll, SplitsMayCountRowsAndOneSideMayBeEven) {
  // 4 rows of 100 floats, one of them the rank's own: 300 floats leave; 400 arrive from 2 even
  // parts.
  const Breakdown b =
      break_down(job_of_ranks({trace_of(0, 2, {all_to_all(400, 400, "[1, 3]", "[]")}),
                               trace_of(1, 2, {all_to_all(400, 400, "[]", "[3, 1]")})}));
  EXPECT_NEAR(*b.collectives.at(0).busbw_bytes_per_s, 1200 / 10e-6, 1);
}

TEST(AllToAll, CutSplitsFallBackToTheEvenFormulaAndSaySo) {
  std::string cut = "[1";
  for (int i = 1; i < 29; ++i) cut += ", 1";
  cut += ", ..., 1]";
  const Breakdown b =
      break_down(job_from(trace_of(0, 64, {all_to_all(64, 64, cut.c_str(), cut.c_str(), 64)})));
  EXPECT_NEAR(*b.collectives.at(0).busbw_at_least_bytes_per_s, 256 * 63.0 / 64 / 10e-6, 1);
  EXPECT_THAT(b.notes, Contains(HasSubstr("1 uneven all-to-alls are cut above 30 ranks")));
}

TEST(Kineto, AnUnknownCollectiveIsReported) {
  const Breakdown b =
      break_down(job_from(trace_of(0, 2,
                                   {kernel(kKernel, 0, 10, collective("all_dance", 8, 2)),
                                    kernel(kKernel, 20, 10, collective("_ALLGATHER_base", 8, 2)),
                                    kernel(kKernel, 40, 10, collective("WAIT", 0, 1))})));
  EXPECT_EQ(b.collectives.at(0).op, CommOp::all_reduce);  // by the kernel's name
  EXPECT_EQ(b.collectives.at(1).op, CommOp::all_gather);
  EXPECT_THAT(b.notes,
              Contains(HasSubstr("collective name \"all_dance\" (1 records) is not known")));
  EXPECT_THAT(b.notes, Not(Contains(HasSubstr("WAIT"))));
}

/// A launch at `at` inside an annotation, and the kernel it started.
std::vector<std::string> launched(const std::string& mark) {
  return {
      fmt::format(
          R"({{"ph":"X","cat":"user_annotation","name":"{}","pid":1,"tid":9,"ts":0,"dur":10,)"
          R"("args":{{"Input Dims":[[1]],"Input type":["float"]}}}})",
          mark),
      R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":9,"ts":4,"dur":1,)"
      R"("args":{"correlation":5}})",
      kernel("ncclDevKernel_Generic", 10, 5, R"("correlation":5)")};
}

TEST(Kineto, MarksNameTheirOperation) {
  const auto op = [](const std::string& mark) {
    return break_down(job_from(trace_of(0, 2, launched(mark)))).collectives.at(0).op;
  };
  EXPECT_EQ(op("nccl:send 0->1"), CommOp::send);
  EXPECT_EQ(op("nccl:recv 1<-0"), CommOp::recv);
  EXPECT_EQ(op("nccl:all_reduce_barrier"), CommOp::barrier);
  EXPECT_EQ(op("nccl:_reduce_scatter_base"), CommOp::reduce_scatter);
  EXPECT_EQ(op("xccl:_broadcast_oop"), CommOp::broadcast);
}

TEST(Kineto, TheRecordAroundTheLaunchStatesTheSizeWhereExternalIdsAreCorrelations) {
  std::vector<std::string> events = launched("nccl:all_reduce");
  events.push_back(
      R"({"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":9,"ts":1,"dur":8,)"
      R"("args":{"External id":77,)" +
      collective("allreduce", 256, 2) + "}}");
  events.push_back(kernel("gemm", 90, 5, R"("correlation":8,"External id":8)"));
  const Breakdown b = break_down(job_from(trace_of(0, 2, events)));
  EXPECT_EQ(b.collective_bytes, 1024);
}

TEST(Kineto, AKernelWithoutLaunchBelongsToTheStepOfItsDeviceAnnotation) {
  // The host is in step 2 while the device still works on step 1.
  const std::string on_device =
      R"({"ph":"X","cat":"gpu_user_annotation","name":"ProfilerStep#1","pid":0,"tid":7,"ts":50,)"
      R"("dur":100})";
  const Breakdown b =
      break_down(job_from(trace_of(0, 2,
                                   {step(1, 0, 100), step(2, 100, 100), on_device,
                                    kernel(kKernel, 120, 10, collective("allreduce", 8, 2))})));
  EXPECT_EQ(b.collectives.at(0).step, 1);
  EXPECT_EQ(b.steps.size(), 2u);  // the device's annotation is no step of its own
}

TEST(Kineto, RecordsOfAnotherAcceleratorAreSaidAndTheHostIsNotTakenForTheDevice) {
  const Job job = job_from(trace_of(
      0, 2,
      {R"({"ph":"X","cat":"mtia_ccp_events","name":"k","pid":0,"tid":7,"ts":0,"dur":10})",
       R"({"ph":"X","cat":"user_annotation","name":"gloo:all_reduce","pid":1,"tid":1,"ts":0,)"
       R"("dur":9})"}));
  EXPECT_FALSE(job.cpu_device);
  EXPECT_THAT(job.notes, Contains(HasSubstr("1 records of an accelerator (mtia_ccp_events")));
}

TEST(Kineto, ARenamedKernelIsUnknownAlsoWhereOnlyTheRecordsSayHowManyRanks) {
  const Job job = job_from(
      "[" + kernel("renamed", 0, 10) + "," +
      R"({"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":9,"ts":1,"dur":8,)"
      R"("args":{)" +
      collective("allreduce", 256, 8) + "}}]");
  EXPECT_TRUE(job.communication_unknown);
}

TEST(Breakdown, EachCollectiveSaysWhatOfItIsExposed) {
  // 0..100 under computation until 70: 30 us exposed; the one behind it wholly.
  const Breakdown b = break_down(job_from(
      trace_of(0, 2,
               {kernel("gemm", 0, 70), kernel(kKernel, 0, 100, collective("allreduce", 8, 2), 9),
                kernel(kKernel, 200, 40, collective("allreduce", 8, 2), 9)})));
  EXPECT_NEAR(b.collectives.at(0).exposed_s.value(), 30e-6, 1e-12);
  EXPECT_NEAR(b.collectives.at(1).exposed_s.value(), 40e-6, 1e-12);
}

}  // namespace
}  // namespace linerate::trace
