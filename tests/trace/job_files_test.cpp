// Which files are one job: cycles, folders, patterns, and what is refused by name.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "linerate/core/error.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/to_workload.hpp"
#include "support/says.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string files_refusal(const std::string& a, const std::string& b) {
  return refusal_of([&] { job_of_files({{"a.json", a}, {"b.json", b}}); });
}

/// Two steps of 100 us from `at`, with one all-reduce of so many floats in each.
std::string two_steps(int rank, int world, double at, int first_step, long elements = 1000) {
  Events events;
  for (int s = 0; s < 2; ++s, at += 100)
    append(events, {step(first_step + s, at, 100), kernel("gemm", at, 50),
                    kernel("ncclDevKernel_AllReduce_Sum_f32", at + 50, 40,
                           collective("allreduce", elements, world), 9)});
  return trace_of(rank, world, events);
}

TEST(Cycles, SeveralFilesOfOneRankAreJoined) {
  // A schedule with repeat=2: steps 3, 4 and, a second later, 9, 10, of both ranks.
  const Job job = job_of_files({{"rank0.a.json", two_steps(0, 2, 0, 3)},
                                {"rank1.b.json", two_steps(1, 2, 1'000'000, 9)},
                                {"rank0.b.json", two_steps(0, 2, 1'000'000, 9)},
                                {"rank1.a.json", two_steps(1, 2, 0, 3)}});
  ASSERT_EQ(job.ranks.size(), 2u);
  const Breakdown b = break_down(job);
  EXPECT_EQ(b.steps.size(), 4u);
  EXPECT_EQ(b.collectives.size(), 4u);
  for (const CollectiveRow& row : b.collectives) EXPECT_TRUE(row.transfer_s);
  EXPECT_NEAR(b.in_steps.window_s, 400e-6, 1e-12);  // nothing of the second between the cycles
}

TEST(Cycles, NumberedFromTheSameStepAgainAreToldApart) {
  const Job job = job_of_files(
      {{"rank0.a.json", two_steps(0, 1, 0, 3)}, {"rank0.b.json", two_steps(0, 1, 1'000'000, 3)}});
  ASSERT_EQ(job.ranks.size(), 1u);
  ASSERT_EQ(job.ranks[0].steps.size(), 4u);
  EXPECT_EQ(job.ranks[0].steps[2].number, 6);  // a step lies between them, so nothing else does
}

TEST(MixedJobs, OfOneTraceTwiceOrOfOtherSizesOrBackEndsAreRefused) {
  EXPECT_THAT(files_refusal(two_steps(0, 1, 0, 3), two_steps(0, 1, 0, 3)),
              HasSubstr("is of rank 0, and so is"));
  EXPECT_THAT(files_refusal(two_steps(0, 2, 0, 3), two_steps(1, 4, 0, 3)),
              HasSubstr("b.json: is of a job with ranks: 4, but a.json is of one with 2"));
  std::string gloo = two_steps(1, 2, 0, 3);
  gloo.replace(gloo.find("nccl"), 4, "gloo");
  EXPECT_THAT(files_refusal(two_steps(0, 2, 0, 3), gloo), HasSubstr("back end gloo"));
  EXPECT_THAT(
      files_refusal(two_steps(0, 2, 0, 3, 1000), two_steps(1, 2, 0, 3, 1001)),
      HasSubstr(
          "exchanged no size that a.json did in the same steps, so these are traces of two jobs"));
}

TEST(MixedJobs, SecondsApartOnTheClockAreRefusedAndStampsWithoutAnEpochAreNot) {
  constexpr double kEpoch = 1.7e15;  // 2023, in us
  const auto refusal = [](double at, double other) {
    return files_refusal(two_steps(0, 2, at, 3), two_steps(1, 2, other, 3));
  };
  EXPECT_THAT(refusal(kEpoch, kEpoch + 30e6),
              HasSubstr("b.json: expected the same steps as a.json, found a record 30.0 s apart"));
  // Clocks of two machines a tenth of a second apart, and machines that count since their start.
  EXPECT_EQ(refusal(kEpoch, kEpoch + 1e5), "no error");
  EXPECT_EQ(refusal(1e9, 9e12), "no error");
}

TEST(Sharding, RecordedFsdpIsNamedAndItsCollectivesAreThoseItIssued) {
  const Job job = recorded_job("fsdp2");
  EXPECT_THAT(refusal_of([&] { import_job(job); }), HasSubstr("FSDP2"));
  // Gloo runs a reduce-scatter as an all-reduce; parts of 45150 floats on two ranks are 361,200
  // bytes in all.
  const Breakdown b = break_down(job);
  std::size_t scatters = 0, gathers = 0;
  for (const CollectiveRow& row : b.collectives) {
    EXPECT_NE(row.op, CommOp::all_reduce);
    if (row.bytes != 361'200) continue;
    scatters += row.op == CommOp::reduce_scatter, gathers += row.op == CommOp::all_gather;
  }
  EXPECT_EQ(scatters, 2u * 2);
  EXPECT_EQ(gathers, 2u * 4);
}

TEST(OneRankOnTheCpu, IsItsOwnDevice) {
  const Breakdown b = break_down(recorded_job("single"));
  EXPECT_TRUE(b.cpu_device);
  EXPECT_GT(b.whole.compute_s, 0);
  EXPECT_THAT(b.notes, Not(says("no device activity")));
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  std::filesystem::path path_;
};

TEST_F(Folder, StandsForTheTracesInItAndSaysWhatItPassedOver) {
  write("config.json", R"({"lr": 0.1})");
  EXPECT_THROW(static_cast<void>(load_job({path_})), InputError);  // without traces
  write("rank0.json", two_steps(0, 2, 0, 3));
  write("rank1.json", two_steps(1, 2, 0, 3));
  write("train.log", "epoch 1\n");
  const Job job = load_job({path_});
  EXPECT_EQ(job.ranks.size(), 2u);
  EXPECT_THAT(job.notes, says("because they are not traces: config.json, train.log"));
  EXPECT_EQ(load_timeline({path_}).ranks, 2);
}

TEST_F(Folder, APatternStandsForWhatMatches) {
  write("rank0.json", two_steps(0, 2, 0, 3));
  write("rank1.json", two_steps(1, 2, 0, 3));
  write("other.json", "{}");
  EXPECT_THAT(input_files({path_ / "rank*.json"}).files,
              ElementsAre(path_ / "rank0.json", path_ / "rank1.json"));
  EXPECT_THROW(input_files({path_ / "nobody*.json"}), InputError);
  write("with[1].json", two_steps(0, 1, 0, 3));  // a file of that very name is itself
  EXPECT_THAT(input_files({path_ / "with[1].json"}).files, ElementsAre(path_ / "with[1].json"));
}

TEST(Ascend, IsRefusedByNameAlsoIfItsMarkComesAfterTheHead) {
  const std::string events =
      R"([{"ph":"X","name":"aten::matmul","cat":"cpu_op","pid":10,"tid":1,"ts":"1000.000",)"
      R"("dur":30.0},)" +
      std::string(70'000, ' ') +
      R"({"ph":"M","name":"process_name","pid":20,"tid":0,"args":{"name":"Ascend Hardware"}}])";
  EXPECT_THAT(refusal_of([&] { job_from(events, "t.json"); }),
              HasSubstr("t.json: a trace of Ascend's torch_npu"));
}

}  // namespace
}  // namespace linerate::trace
