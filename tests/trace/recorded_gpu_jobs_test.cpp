// Recordings of real NCCL jobs (../shared/gpu): ResNet-50 on two ranks, with known faults;
// cases/recorded_jobs.case has what is said of each.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "linerate/explain/explanation.hpp"
#include "linerate/models/workload.hpp"
#include "linerate/trace/job/periods.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

const std::filesystem::path kFolder = "../shared/gpu";
constexpr double kAlone = 37.44e-3;  // measured.csv, without a profiler

class RecordedGpuJobs : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << kFolder << " is not there";
  }
  static std::vector<std::filesystem::path> files(const std::string& name) {
    return {kFolder / ("resnet50_" + name + "_r0.json.gz"),
            kFolder / ("resnet50_" + name + "_r1.json.gz")};
  }
  static Explanation explained(const std::string& name) {
    Job job = load_job(files(name));
    find_one_rank_time(job, std::nullopt);  // as the command does
    return explain(job);
  }
  /// Median steps without a profiler, ms, by configuration and rate.
  static std::map<std::string, double> measured_ms() {
    std::map<std::string, double> steps;
    std::ifstream table(kFolder / "measured.csv");
    for (std::string line; std::getline(table, line);) {
      std::vector<std::string> cells;
      std::istringstream row(line);
      for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
      if (cells.size() > 4 && cells[0] == "resnet50")
        steps[cells[2] + cells[3]] = std::stod(cells[4]);
    }
    return steps;
  }
  static double gained(const std::string& fault) {
    const std::map<std::string, double> ms = measured_ms();
    return 1 - ms.at("ddp bucket_cap_mb=25 gradient_as_bucket_viewun") / ms.at(fault);
  }
  static double at_most(const Explanation& e, Remedy r) {
    return share_for(e.verdict.ceilings, r).value();
  }
};

/// As if the first rank's profiler had stopped before its device got to the last `missing`
/// collectives.
Job ended_early(Job job, std::size_t missing) {
  std::vector<Communication>& c = job.ranks.front().communications;
  const std::int64_t end = c[c.size() - missing].span.start_ns;
  c.resize(c.size() - missing);
  std::vector<Span>& compute = job.ranks.front().compute;
  std::vector<std::uint64_t>&names = job.ranks.front().compute_names,
  &sizes = job.ranks.front().launch_sizes;
  for (std::size_t i = compute.size(); i-- > 0;) {
    if (compute[i].start_ns < end) continue;
    compute.erase(compute.begin() + static_cast<std::ptrdiff_t>(i));
    if (!names.empty()) names.erase(names.begin() + static_cast<std::ptrdiff_t>(i));
    if (!sizes.empty()) sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  find_partial_steps(job);
  return job;
}

TEST_F(RecordedGpuJobs, HalfAStepIsLeftOutAndChangesNoCause) {
  for (const char* name : {"10G", "late", "slowgpu"}) {
    const Job whole = load_job(files(name));
    // Ten are of somewhat more than a step: four buckets, and two broadcasts of buffers.
    for (const std::size_t missing : {1, 3, 4, 8, 9, 10}) {
      Job job = ended_early(whole, missing);
      find_one_rank_time(job, std::nullopt);
      const Explanation e = explain(job);
      EXPECT_FALSE(e.breakdown.path.of_some_ranks.empty()) << name;
      const bool late = std::string(name) != "10G";
      EXPECT_EQ(e.breakdown.path.causes.size(), late ? 1u : 0u) << name << ", " << missing;
    }
  }
}

TEST_F(RecordedGpuJobs, NoCeilingIsBelowWhatWasGainedAndNoneIsTheWholeStep) {
  const struct {
    const char* name;
    Remedy remedy;
  } faults[] = {{"late", Remedy::no_stragglers},
                {"slowgpu", Remedy::no_stragglers},
                {"loader", Remedy::no_host_gaps}};
  for (const auto& f : faults)
    EXPECT_GE(at_most(explained(f.name), f.remedy), gained(f.name)) << f.name;
  for (const char* name : {"un", "10G", "fp16_10G", "psgd_10G", "late", "loader", "slowgpu"}) {
    const Explanation e = explained(name);
    for (std::size_t r = 0; r < kRemedies; ++r) {
      EXPECT_LT(e.verdict.ceilings[r].value(), 0.95) << name << ", " << kRemedyNames[r];
      EXPECT_GE(e.verdict.ceilings[r].value(), e.verdict.gains[r].value()) << name;
    }
  }
  // At 10 Gbit/s the network is busy for almost the whole step: overlap hides little of it.
  EXPECT_LT(at_most(explained("10G"), Remedy::perfect_overlap), 0.3);
}

// What a rank takes alone is what an infinitely fast network leaves, without the profiler at that.
TEST_F(RecordedGpuJobs, NoCeilingOfTheNetworkIsBelowWhatARankAloneGains) {
  const std::map<std::string, double> ms = measured_ms();
  const struct {
    const char* name;
    const char* step;
  } jobs[] = {{"un", "ddp bucket_cap_mb=25 gradient_as_bucket_viewun"},
              {"10G", "ddp bucket_cap_mb=25 gradient_as_bucket_view10G"},
              {"fp16_10G", "ddp fp16_compress_hook10G"}};
  for (const auto& job : jobs) {
    const double most = at_most(explained(job.name), Remedy::infinitely_fast_network);
    EXPECT_GE(most, 1 - ms.at("alone") / ms.at(job.step)) << job.name;
    EXPECT_LT(most, 1 - 0.8 * ms.at("alone") / ms.at(job.step)) << job.name;
  }
}

// What `report` draws from.
TEST_F(RecordedGpuJobs, APageHasTheCeilingsOfExplain) {
  EXPECT_EQ(gain_rows(load_explained(files("10G")).explanation.verdict),
            gain_rows(explained("10G").verdict));
}

TEST_F(RecordedGpuJobs, AStepOfTheDeviceBeginsWithItsForwardPass) {
  const Job job = load_job(files("slowgpu"));
  for (const RankActivity& r : job.ranks)
    for (const Span& window : windows_of_steps(r))
      for (const Communication& c : r.communications) {
        // Five all-reduces end within each step, and none reaches over its border.
        if (c.op != CommOp::all_reduce) continue;
        EXPECT_FALSE(c.span.start_ns < window.start_ns - 100'000 &&
                     c.span.end_ns > window.start_ns + 100'000);
      }
  // The last step is whole on the device, though the host's mark ends 90 ms before it.
  const Explanation e = explain(job);
  EXPECT_NEAR(e.breakdown.steps.back().length_s, e.breakdown.steps.front().length_s, 0.010);
}

// Without shapes a Workload has buckets, which are full long before the network is free for them.
TEST_F(RecordedGpuJobs, BucketsAreFullBeforeTheyStart) {
  Job job = load_job(files("un"));
  const double whole = *alone_steps(job).time->step_s.high;
  job.gradients.clear(), job.layers.clear();
  for (RankActivity& r : job.ranks) r.passes.clear();
  const doc::Workload w = import_job(job).workload;
  ASSERT_EQ(w.gradients.size(), 4u);
  EXPECT_NEAR(*w.step_s / kAlone, 1, 0.05);
  EXPECT_LE(w.gradients.back().ready_s, whole);
  EXPECT_LT(w.gradients.front().ready_s, 0.6 * kAlone);
}

TEST_F(RecordedGpuJobs, HaveTheLayersOfTheZoo) {
  doc::Workload zoo = models::workload("resnet50", {.batch = 32});
  // Both branches of a block run in either order: compared without it.
  const auto counted = [](const doc::Workload& w) {
    std::map<std::tuple<std::string, doc::BlockKind, std::int64_t, std::int64_t, int, std::int64_t,
                        std::int64_t>,
             int>
        blocks;
    for (const doc::Block& b : w.blocks)
      ++blocks[{w.layers.at(static_cast<std::size_t>(b.layer)).kind, b.kind, b.a, b.g, b.groups,
                b.rows_a, b.rows_g}];
    return blocks;
  };
  const auto matrices = [](const doc::Workload& w) {
    std::map<std::pair<std::int64_t, std::int64_t>, int> shapes;
    for (const doc::Gradient& g : w.gradients) ++shapes[{g.elements, *g.rows}];
    return shapes;
  };
  for (const char* name : {"un", "10G", "psgd_10G", "fp16_10G", "slowgpu"}) {
    const ImportedJob i = import_job(load_job(files(name)));
    EXPECT_EQ(i.workload.gradients.size(), 161u) << name;
    EXPECT_EQ(counted(i.workload), counted(zoo)) << name;
    EXPECT_EQ(matrices(i.workload), matrices(zoo)) << name;
    EXPECT_EQ(i.note_with("kfac"), "") << name;
  }
}

}  // namespace
}  // namespace linerate::trace
