// One recording has one answer: its Timeline, saved and read again, is explained as its traces are,
// to the last digit of every number.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "linerate/trace/to_workload.hpp"
#include "trace/feed_importer.hpp"
#include "trace/importer_seeds.hpp"

namespace linerate::trace {
namespace {

std::string answer(const Job& job) {
  const Explanation e = explain(job);
  return explain_json(e.breakdown, e.verdict) + explain_text(e.breakdown, e.verdict);
}

std::string workload_or_error(const Job& job) {
  std::vector<std::string> notes;
  try {
    return doc::to_json(workload_of(job, "job", notes));
  } catch (const InputError& e) {
    return e.what();
  }
}

/// As verbs read a Timeline: from a file, and held in memory.
void expect_same_answers(Job job) {
  find_one_rank_time(job, std::nullopt);
  const std::string text = doc::to_json(timeline_of_job(job, "job"));
  std::vector<InputFile> files;
  files.push_back(InputFile::from_memory(text, "timeline.json"));
  const Job read = read_job(files), held = job_of(doc::timeline_from_json(text, "timeline.json"));
  EXPECT_EQ(answer(read), answer(job));
  EXPECT_EQ(answer(held), answer(job));
  EXPECT_EQ(workload_or_error(read), workload_or_error(job));
  EXPECT_EQ(doc::to_json(timeline_of_job(read, "job")), text);
}

/// Traces in this folder and below, the ranks of a job together: resnet50_r0, late2.rank1.
std::map<std::string, std::vector<std::filesystem::path>> jobs_below(
    const std::filesystem::path& folder) {
  std::map<std::string, std::vector<std::filesystem::path>> jobs;
  if (!std::filesystem::exists(folder)) return jobs;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::string name = entry.path().string();
    if (name.find(".json") == std::string::npos) continue;
    for (const char* rank : {".rank", "_r0.", "_r1."})
      if (const auto at = name.find(rank); at != std::string::npos) name.resize(at);
    jobs[name].push_back(entry.path());
  }
  for (auto& [name, files] : jobs) std::sort(files.begin(), files.end());
  return jobs;
}

int expect_same_below(const std::filesystem::path& folder) {
  int compared = 0;
  for (const auto& [name, files] : jobs_below(folder)) {
    SCOPED_TRACE(name);
    std::optional<Job> job;
    try {
      job = load_job(files);
    } catch (const Error&) {  // made to be refused, or no traces
      continue;
    }
    expect_same_answers(*job);
    ++compared;
  }
  return compared;
}

TEST(OneRecording, ItsTimelineSaysWhatItsTracesSay) {
  EXPECT_GT(expect_same_below(TRACE_FIXTURES), 10);
}

/// `explain` says how much of the step an infinitely fast network gains at most; `advise` says the
/// same of the Workload that `import` makes. Returns how many recordings were compared.
int expect_one_ceiling_below(const std::filesystem::path& folder) {
  int compared = 0;
  for (const auto& [name, files] : jobs_below(folder)) {
    SCOPED_TRACE(name);
    std::optional<Job> job;
    doc::Workload w;
    try {
      job = load_job(files);
      std::vector<std::string> notes;
      w = workload_of(*job, "job", notes);
    } catch (const Error&) {  // no traces, or of no job that exchanges gradients
      continue;
    }
    if (!w.recorded || w.recorded->ranks < 2) continue;
    find_one_rank_time(*job, std::nullopt);
    const Explanation e = explain(*job);
    EXPECT_NEAR(w.one_rank_step_s(), job->one_rank->step_s.value, 1e-3 * w.one_rank_step_s());
    const auto most = share_for(e.verdict.ceilings, Remedy::infinitely_fast_network);
    if (!most || !w.recorded->least_s) continue;
    advise::AdviseOptions options;
    options.current = doc::parse_strategy(w.current.empty() ? "ddp" : w.current);
    options.current_is_known = !w.current.empty();
    doc::Cluster cluster;
    cluster.ranks = w.recorded->ranks;
    cluster.network = {1.25e9, 1e-5};
    const doc::Advice advice = advise::advise(w, cluster, options);
    const doc::Ceiling& ceiling = advice.ceilings.front();
    EXPECT_EQ(ceiling.remedy, "infinitely fast network");
    EXPECT_NEAR(1 - ceiling.step_s.value / *advice.measured_step_s, *most, 1e-9);
    if (*most >= 0.0005) {
      EXPECT_THAT(ceiling.reason, testing::HasSubstr("at most " + format_percent(*most) +
                                                     " of the step as recorded"));
    }
    ++compared;
  }
  return compared;
}

TEST(OneRecording, HasOneCeilingInEveryVerb) {
  EXPECT_GT(expect_one_ceiling_below(TRACE_FIXTURES), 5);
  for (const char* folder : {"../shared/gpu", "../shared/wild"}) expect_one_ceiling_below(folder);
}

TEST(OneRecording, OfOthersSaysTheSameAsItsTraces) {
  int compared = 0;
  for (const char* folder : {"../shared/gpu", "../shared/wild", "../shared/data/kineto"})
    compared += expect_same_below(folder);
  if (compared == 0) GTEST_SKIP() << "../shared is not there";
}

// Of every format: what the importers find is kept, whatever it is.
TEST(OneRecording, OfEveryFormatSaysTheSameAsItsTraces) {
  int compared = 0;
  for (const std::string& seed : format_seeds()) {
    SCOPED_TRACE(seed.substr(0, 200));
    std::vector<InputFile> files = files_of(seed);
    std::optional<Job> job;
    try {
      job = read_job(files);
    } catch (const Error&) {  // no traces of a job
      continue;
    }
    expect_same_answers(*job);
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

TEST(OneRecording, WhatIsWrongInItIsNamed) {
  Job job;
  job.ranks.resize(1);
  job.ranks[0].steps = {{.number = 0, .span = {0, 10}}};
  job.ranks[0].communications = {{.span = {0, 5}, .step = 0}};
  doc::Timeline t = timeline_of_job(job, "job");
  const std::string step = R"("step":0)";
  t.recording.replace(t.recording.find(step), step.size(), R"("step":7)");
  EXPECT_THAT(refusal_of([&] { static_cast<void>(job_of(t)); }),
              testing::HasSubstr("recording: /of_ranks/0/communications/0/step"));
}

}  // namespace
}  // namespace linerate::trace
