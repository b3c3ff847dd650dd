// Recorded steps of the code for parameters on a device, on the CPU: the same Timeline as the other
// code's, and what the commands read in it.
#include <fmt/format.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "linerate/compare/comparison.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/exec/recorder.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/parity.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::HasSubstr;

constexpr const char* kRecordedGroup = "recorded";
constexpr int kStreamedAndRecorded = 14;  // the first are measured, and recorded too

/// What a program adds to the recorder by itself: passes and steps.
class RecordingProgram {
 public:
  RecordingProgram(Communicator& communicator, const std::string& strategy,
                   const std::string& device_group)
      : communicator_(communicator),
        recorder_(communicator, exec::agree_origin(communicator), "trained"),
        parallel_(model_, communicator,
                  {.strategy = strategy,
                   .measured_steps = 2,
                   .recorder = &recorder_,
                   .device_group = device_group}),
        optimizer_(model_.parameters(), torch::optim::SGDOptions(0.05)) {
    for (int step = 0; step < kStreamedAndRecorded; ++step) run(step);
  }

  doc::Timeline mine() const { return recorder_.timeline(); }
  /// On rank 0.
  doc::Timeline of_all() {
    doc::Timeline own = mine();
    own.strategy = parallel_.plan().strategy;
    return exec::gather_timeline(communicator_, own);
  }

 private:
  void run(int step) {
    recorder_.begin_step(step);
    const std::int64_t start = recorder_.now();
    const at::Tensor loss = mean_loss(model_.forward(numbers({kBatch, 6}, step, at::kFloat)),
                                      numbers({kBatch, 3}, 1, at::kFloat));
    const std::int64_t computed = recorder_.now();
    add(doc::TaskKind::forward, start, computed);
    loss.backward();
    add(doc::TaskKind::backward, computed, recorder_.now());
    // Not step(): with dear the other code has an update a bucket, where this one has one.
    const StepReport report = parallel_.finish();
    EXPECT_EQ(report.host_waits, 0);
    const std::int64_t exchanged = recorder_.now();
    optimizer_.step();
    add(doc::TaskKind::update, exchanged, recorder_.now());
    recorder_.add_step(step, start, recorder_.now(), report.variant);
    model_.zero_grad();
  }
  void add(doc::TaskKind kind, std::int64_t start, std::int64_t end) {
    recorder_.add(
        {.kind = kind, .resource = doc::Resource::compute, .start_ns = start, .end_ns = end});
  }

  Communicator& communicator_;
  Mlp model_;
  exec::Recorder recorder_;
  DataParallel parallel_;
  torch::optim::SGD optimizer_;
};

/// "all-reduce bucket 0: a.weight b.bias, 1052 bytes", of a step.
std::multiset<std::string> tasks_of(const doc::Timeline& t, int step) {
  std::multiset<std::string> tasks;
  for (const doc::Event& e : t.events) {
    if (e.step != step) continue;
    std::string line = e.name < 0 ? std::string(name_of(e.kind)) : t.names[to_index(e.name)];
    if (e.set >= 0)
      for (const std::int32_t p : t.parameter_sets[to_index(e.set)])
        line += " " + t.parameter_names[to_index(p)];
    tasks.insert(fmt::format("{}, {} bytes, in {}", line, e.bytes, name_of(e.resource)));
  }
  return tasks;
}

/// One after the other as they have to be.
void expect_in_order(const doc::Timeline& t, const std::string& title) {
  std::map<int, doc::Step> steps;
  std::int64_t before = INT64_MIN;
  for (const doc::Step& s : t.steps) {
    EXPECT_LE(before, s.start_ns) << title;
    EXPECT_LT(s.start_ns, s.end_ns) << title;
    before = s.end_ns;
    steps[s.index] = s;
  }
  ASSERT_EQ(steps.size(), to_index(kStreamedAndRecorded)) << title;
  for (const doc::Event& e : t.events) {
    EXPECT_LE(e.start_ns, e.end_ns) << title;
    EXPECT_LE(steps[e.step].start_ns, e.start_ns) << title;
    EXPECT_LE(e.end_ns, steps[e.step].end_ns) << title;
    if (e.kind != doc::TaskKind::all_reduce) continue;
    EXPECT_LE(e.ready_ns, e.start_ns) << title;
    EXPECT_GE(e.ready_ns, 0) << title;
  }
}

TEST(StreamRecording, HasWhatTheOtherCodeRecords) {
  ranks(2, [](Communicator& communicator) {
    const GroupOverCommunicator group(kRecordedGroup, communicator);
    for (const std::string strategy : {"bulk", "ddp", "ddp(first=64B, bucket=512B)", "wfbp",
                                       "dear(layers=1)", "ddp(wire=fp16)"}) {
      const doc::Timeline expected = RecordingProgram(communicator, strategy, "").mine();
      const doc::Timeline found = RecordingProgram(communicator, strategy, kRecordedGroup).mine();
      expect_in_order(found, strategy);
      for (int step = 0; step < kStreamedAndRecorded; ++step)
        EXPECT_EQ(tasks_of(found, step), tasks_of(expected, step)) << strategy << ", step " << step;
    }
  });
}

/// What a command prints.
std::string printed(const std::string& arguments, const std::filesystem::path& folder) {
  const std::filesystem::path out = folder / "printed.txt";
  const std::string line =
      fmt::format("{} {} > {} 2>&1", LINERATE_COMMAND, arguments, out.string());
  EXPECT_EQ(std::system(line.c_str()), 0) << read_file(out);
  return read_file(out);
}

TEST(StreamRecording, IsExplainedAndCompared) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("recording-{}", getpid());
  std::filesystem::create_directories(folder);
  ranks(2, [&](Communicator& communicator) {
    const GroupOverCommunicator group(kRecordedGroup, communicator);
    for (const std::string device_group : {"", kRecordedGroup}) {
      const doc::Timeline whole =
          RecordingProgram(communicator, "ddp(first=64B, bucket=512B)", device_group).of_all();
      if (communicator.rank() == 0)
        doc::save(whole, folder / (device_group.empty() ? "host.json" : "run.json"));
    }
  });
  const std::string run = (folder / "run.json").string(), host = (folder / "host.json").string();
  const std::string explained = printed("explain " + run, folder);
  EXPECT_THAT(explained, HasSubstr("verdict: "));
  EXPECT_THAT(explained, HasSubstr("exposed communication"));
  EXPECT_THAT(explained, HasSubstr("the CPU is the device"));
  doc::Timeline elsewhere = doc::load_timeline(run);
  EXPECT_EQ(elsewhere.device, "");
  elsewhere.device = "cuda";
  const std::filesystem::path renamed = folder / "cuda.json";
  doc::save(elsewhere, renamed);
  EXPECT_THAT(printed("explain " + renamed.string(), folder), HasSubstr("the device is cuda"));
  const std::string compared = printed(fmt::format("compare {} {}", host, run), folder);
  EXPECT_THAT(compared, HasSubstr("all-reduce"));
  // Every task has its partner: names, kinds and parameters are the same.
  const compare::Comparison joined =
      compare::compare(doc::load_timeline(host), doc::load_timeline(run));
  EXPECT_TRUE(joined.only_predicted.empty());
  EXPECT_TRUE(joined.only_measured.empty());
  EXPECT_GE(joined.tasks.size(), 5u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace linerate::torch_adapter
