// Which files are one job: folders and patterns; cases/files_of_a_job.case has cycles and what is
// refused.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "linerate/core/error.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/load.hpp"
#include "support/says.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Two steps of 100 us with one all-reduce in each.
std::string two_steps(int rank, int world) {
  return trace_of(rank, world, in_steps(2, 100, [world](int, double at) {
                    return Events{kernel("gemm", at, 50),
                                  kernel("ncclDevKernel_AllReduce_Sum_f32", at + 50, 40,
                                         collective("allreduce", 1000, world), 9)};
                  }));
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
  write("rank0.json", two_steps(0, 2));
  write("rank1.json", two_steps(1, 2));
  write("train.log", "epoch 1\n");
  const Job job = load_job({path_});
  EXPECT_EQ(job.ranks.size(), 2u);
  EXPECT_THAT(job.notes, says("because they are not traces: config.json, train.log"));
  EXPECT_EQ(load_timeline({path_}).ranks, 2);
}

TEST_F(Folder, APatternStandsForWhatMatches) {
  write("rank0.json", two_steps(0, 2));
  write("rank1.json", two_steps(1, 2));
  write("other.json", "{}");
  EXPECT_THAT(input_files({path_ / "rank*.json"}).files,
              ElementsAre(path_ / "rank0.json", path_ / "rank1.json"));
  EXPECT_THROW(input_files({path_ / "nobody*.json"}), InputError);
  write("with[1].json", two_steps(0, 1));  // a file of that very name is itself
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
