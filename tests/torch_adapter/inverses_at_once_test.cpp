// What lets a device compute a rank's inverses at once: none uses what another one writes, nothing
// that one has read is freed before the lane has joined it, and they take no more memory than said.
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>

#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/streams/inverse_runs.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/memory_uses.hpp"

namespace linerate::torch_adapter {
namespace {

bool inverts(const MemoryUse& task) { return task.title.starts_with("inverse"); }
bool is_average(const MemoryUse& task) { return task.title.starts_with("copy factors"); }

/// Of one rank and all its steps.
struct Found {
  std::size_t inverses = 0, pairs = 0;
};

/// Whether the Plan has an edge from one to the other, by their titles.
bool has_edge(const doc::Plan& plan, const std::string& from, const std::string& to) {
  for (const doc::TaskGraph& graph : plan.variants)
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      if (doc::title_of(plan, graph, graph.tasks[i]) != to) continue;
      for (const std::uint32_t p : graph.predecessors(i))
        if (doc::title_of(plan, graph, graph.tasks[p]) == from) return true;
    }
  return false;
}

/// Any two inverses of a step; an inverse and any average but one before it that it has an edge
/// from.
void expect_independent(const std::vector<MemoryUse>& tasks, const doc::Plan& plan, Found& found) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!inverts(tasks[i])) continue;
    ++found.inverses;
    EXPECT_FALSE(tasks[i].written.empty()) << plan.strategy << ", " << tasks[i].title;
    int averages = 0;
    for (std::size_t j = 0; j < tasks.size(); ++j) {
      if (inverts(tasks[j]) ? j >= i : !is_average(tasks[j])) continue;
      ++found.pairs;
      if (!tasks[i].is_apart_from(tasks[j])) continue;
      const bool is_its_average = j < i && is_average(tasks[j]) &&
                                  has_edge(plan, tasks[j].title, tasks[i].title) && ++averages == 1;
      EXPECT_TRUE(is_its_average) << plan.strategy << ": " << tasks[j].title << ", "
                                  << tasks[i].title;
    }
    EXPECT_EQ(averages, 1) << plan.strategy << ", " << tasks[i].title;
  }
}

bool is_of_the_network(const MemoryUse& task) {
  return task.title.starts_with("broadcast") || task.title.starts_with("all-");
}

/// Of the run of inverses that is under way, before the lane goes on.
void expect_nothing_freed() {
  const auto& tasks = MemoryUses::tasks;
  for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
    if (!inverts(*task) && !is_average(*task) && !is_of_the_network(*task)) return;
    EXPECT_FALSE(inverts(*task) && task->has_lost_memory()) << task->title;
  }
}

template <typename Model>
Found check_steps(comm::Communicator& c, const std::string& strategy, const Data& mine) {
  Model net;
  KfacOptions options = kfac_options();
  options.exact_resume = true;  // inverses keep what they were made of
  KFAC pre(*net, options);
  DataParallel parallel(*net, c,
                        {.strategy = strategy,
                         .measured_steps = 2,
                         .preconditioner = &pre,
                         .device_group = "of the suite"});
  torch::optim::SGD optimizer = optimizer_of(*net);
  Found found;
  for (int step = 0; step < kSteps; ++step) {
    const MemoryUses uses;
    MemoryUses::before_task = expect_nothing_freed;
    const doc::Plan plan = parallel.plan();
    optimizer.zero_grad();
    parallel.set_batch(mine.inputs.size(0));
    loss_of(net, mine).backward();
    parallel.finish();
    expect_independent(MemoryUses::tasks, plan, found);
    pre.step();
    optimizer.step();
  }
  return found;
}

TEST(InversesAtOnce, UseNothingThatAnotherOneWrites) {
  const Data images = Data::whole(), tokens = Data::of_tokens();
  const CpuAsDevice as_device;
  for (const std::string& kfac : strategies()) {
    if (kfac.find("hybrid") != std::string::npos) continue;  // several columns are refused
    const std::string strategy = "ddp+" + kfac;
    comm::run_ranks(2, [&](comm::Communicator& c) {
      const GroupOverCommunicator group("of the suite", c);
      const Found dense = check_steps<Net>(c, strategy, images.of(c));
      const Found others = check_steps<TokenNet>(c, strategy, tokens.of(c, true));
      EXPECT_GT(dense.pairs, 0u) << strategy;
      EXPECT_GT(others.inverses, 0u) << strategy;
    });
  }
}

TEST(InversesAtOnce, AreOneOrMoreAtOnce) {
  comm::run_ranks(1, [&](comm::Communicator& c) {
    const GroupOverCommunicator group("of the suite", c);
    Net net;
    try {
      const DataParallel parallel(*net, c, {.device_group = "of the suite", .inverses_at_once = 0});
      ADD_FAILURE() << "none at once";
    } catch (const UsageError& e) {
      EXPECT_STREQ(e.what(),
                   "inverses_at_once: expected 1 or more, found 0; 1 computes one after the other");
    }
  });
}

/// Bytes that this thread's CPU tensors take beyond what there was when it was made.
class PeakMemory final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t change, std::size_t, std::size_t,
                         c10::Device) override {
    now += change;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now = 0, peak = 0;
};

/// As the owner of a factor: inverted, packed into the message, and used as others unpack it.
std::int64_t peak_of_inverse(std::int64_t d, at::ScalarType type) {
  const auto block = make_block({.name = "layer", .weight = torch::zeros({3, d}, type)}, {});
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
    const at::Tensor packed = torch::rand({block->packed_elements(side)}, type);
    block->enqueue_average(side, packed, torch::tensor(true), 0.95, false);
  }
  const at::Tensor message = torch::empty({block->inverse_elements(FactorSide::a)}, type);
  const at::Tensor damping = torch::ones({}, torch::kDouble);
  const auto memory = std::make_shared<PeakMemory>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  for (int step = 0; step < 2; ++step) {  // the second has an old one to keep
    const CurvatureBlock::Curvature before = block->curvature(FactorSide::a);
    const auto found = block->enqueue_inverse(FactorSide::a, damping);
    message.copy_(block->packed_inverse(FactorSide::a));
    block->enqueue_taken_inverse(FactorSide::a, message, found.succeeded, damping);
  }
  return memory->peak;
}

TEST(InversesAtOnce, TakeNoMoreMemoryThanTheirStreamsAreGiven) {
  const CpuAsDevice as_device;
  for (const auto type : {torch::kFloat, torch::kDouble})
    for (const std::int64_t d : {60, 300}) {
      doc::Task task;
      task.bytes = d * (d + 1) / 2 * static_cast<std::int64_t>(c10::elementSize(type));
      const std::int64_t peak = peak_of_inverse(d, type), room = exec::inverse_workspace(task);
      std::printf("[ workspace ] %s, %d rows: %.1f bytes an element, of %.1f\n",
                  c10::toString(type), static_cast<int>(d),
                  static_cast<double>(peak) / static_cast<double>(d * d),
                  static_cast<double>(room) / static_cast<double>(d * d));
      EXPECT_LE(peak, room);
      EXPECT_GE(peak, room / 3);
    }
}

}  // namespace
}  // namespace linerate::torch_adapter
