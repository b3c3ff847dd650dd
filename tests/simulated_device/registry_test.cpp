// Every strategy and compressor of the registry and every kfac(...) trains on simulated devices.
// The weights are the CPU's, and uses of memory are ordered. The host waits for nothing that is not
// named here, and launches.txt bounds the launches of a step.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "simulated_device/learner.hpp"
#include "simulated_device/page_table.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::simulated {
namespace {

using torch_adapter::numbers;

constexpr int kSteps = 7, kFinal = 4;  // plans are final from this step on

struct Strategy {
  std::string text;
  bool has(const char* part) const { return text.find(part) != std::string::npos; }
  bool is_kfac() const { return preconditions(text); }
  at::ScalarType type() const { return is_kfac() ? at::kDouble : at::kFloat; }
};

struct Trained {
  at::Tensor weights;        // and buffers
  std::vector<Asked> steps;  // of the device
  std::vector<bool> has_new_plan;
  std::string conflicts;
};

/// What a step has done, and nothing is asked from now on.
void note_step(const at::Device& where, Trained& trained) {
  if (where.is_cpu()) return;
  trained.steps.push_back(asked_of(where.index()));
  trained.conflicts += trained.steps.back().conflicts_in_words();
  forget(where.index());
}

Trained train(Communicator& communicator, const Strategy& strategy, at::Device where) {
  if (!where.is_cpu()) finish_all(where.index());
  Learner learner(communicator, where,
                  {.strategy = strategy.text,
                   .measured_steps = 2,
                   .device_group = where.is_cpu() ? "" : kOfLearners},
                  strategy.type());
  DataParallel& parallel = *learner.parallel;
  Trained trained;
  const auto batch = [&](at::IntArrayRef shape, double seed) {
    return numbers(shape, seed, strategy.type()).to(where);
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> batches;
  for (int step = 0; step < kSteps; ++step)
    batches.emplace_back(batch({kRows, 3, 4, 4}, step + 10 * learner.rank),
                         batch({kRows, 5}, step + 0.5 + learner.rank));
  std::uint64_t plan = parallel.plan().hash();
  if (!where.is_cpu()) forget(where.index());
  for (int step = 0; step < kSteps; ++step) {
    const auto& [x, y] = batches[static_cast<std::size_t>(step)];
    if (step % 3 == 1) parallel.set_batch(kRows + learner.rank);
    learner.loss_of(x, y, step % 4 != 3).backward();
    learner.step();
    trained.has_new_plan.push_back(std::exchange(plan, parallel.plan().hash()) != plan);
    note_step(where, trained);
  }
  parallel.settle();
  trained.weights = learner.state();
  if (!where.is_cpu()) trained.conflicts += asked_of(where.index()).conflicts_in_words();
  return trained;
}

/// Every exchange and options that change its buckets or what it sends, every compressor, every
/// kfac. On other numbers of ranks than two each compressor by the exchange that it takes itself.
std::vector<Strategy> strategies(int ranks) {
  std::vector<std::string> all = torch_adapter::exchange_strategies();
  // Two of the six tensors are coded, and the others travel dense.
  for (const char* some : {"topk(density=0.1, dense_below=200, exchange=gather)",
                           "topk(density=0.1, dense_below=200, exchange=two-phase)",
                           "onebit-adam(dense_below=200)", "powersgd(rank=1, dense_below=200)"})
    all.push_back(fmt::format("ddp(first=64B, bucket=2KiB)+{}", some));
  for (const std::string& coding : torch_adapter::coding_strategies())
    if (ranks == 2 || coding.find("exchange=") == std::string::npos) all.push_back(coding);
  for (const char* kfac :
       {"d, factors=1, inverses=2", "mpd, factors=1, inverses=2",
        "mpd, fusion=none, broadcasts=fused, factors=1, inverses=1",
        "mpd, inverse=eigen, fusion=none, factors=1, inverses=1", "mem, factors=1, inverses=2",
        ranks == 3 ? "hybrid, fraction=0.3333333333333333, factors=1, inverses=2"
                   : "hybrid, factors=1, inverses=2",
        "spd, factors=1, inverses=1",
        "spd, fusion=greedy, placement=lbp2021, theta=10, factors=1, inverses=2",
        "spd, fusion=none, placement=round-robin, factors=1, inverses=2", "dp, inverses=2"})
    all.push_back(fmt::format("ddp+kfac({})", kfac));
  all.insert(all.end(), {"bulk+kfac(spd, factors=1, inverses=2)",
                         "dear+kfac(spd, clip=off, factors=1, inverses=2)",
                         "dear+kfac(mpd, clip=off, fusion=none, factors=1, inverses=2)"});
  std::vector<Strategy> wrapped;
  for (std::string& text : all) wrapped.push_back({std::move(text)});
  return wrapped;
}

/// What the host may wait for, by strategy; docs/devices.md says why. Copies: a new Plan cuts what
/// a compressor keeps anew, by way of the host.
struct NamedWait {
  const char *strategy, *reason;
  bool of_a_new_plan = false;
};
constexpr NamedWait kNamed[] = {
    {"inverse=eigen", "_linalg_eigh.eigenvalues [inverse "},
    {"inverse=eigen", "an event"},
    {"threshold", "an event"},
    {"threshold", "copy to pageable memory [all-gather-v "},
    {"sidco", "an event"},
    {"sidco", "copy to pageable memory [all-gather-v "},
    {"sidco", "_local_scalar_dense [encode "},
    {"sidco", "copy to pageable memory [encode "},
    {"+", "copy of pageable memory", true},
    {"+", "copy to pageable memory", true},
};

/// Whose plans go by the device's times. Between steps the host waits for what is probed, and for
/// a window of measured steps.
constexpr const char* kPlannedByTimes[] = {"auto", "dear", "horovod", "kfac", "mg-wfbp", "optimal"};

bool is_planned_by_times(const Strategy& strategy) {
  return std::any_of(std::begin(kPlannedByTimes), std::end(kPlannedByTimes),
                     [&](const char* name) { return strategy.has(name); });
}

bool is_named(const Strategy& strategy, const std::string& wait, bool has_new_plan) {
  if (is_of_times(wait) && is_planned_by_times(strategy)) return true;
  return std::any_of(std::begin(kNamed), std::end(kNamed), [&](const NamedWait& named) {
    return strategy.has(named.strategy) && wait.starts_with(named.reason) &&
           (!named.of_a_new_plan || has_new_plan);
  });
}

/// Relative to the weights' norm. A sum of two has one order, and elementwise operators give the
/// same bits on both sides. Products of matrices may not: K-FAC's are f64 here (1e-12 a step,
/// damping amplifies it at most a thousandfold), those of powersgd and acpsgd f32 (2^-12 of a mean,
/// as docs/devices.md says, by a rate of 0.05 over the steps). Of three ranks a sum's order is that
/// of the place in a bucket, and some buckets go by measured times: 1e-6 in f32, and one rounding
/// of an addition where 16 bits travel.
double most_between(const Strategy& strategy, int ranks) {
  if (strategy.is_kfac()) return 1e-9;
  if (torch_adapter::multiplies_matrices(strategy.text)) return 0x1p-12;
  if (ranks <= 2) return 0;
  if (strategy.has("fp16")) return 0x1p-11;
  return strategy.has("bf16") ? 0x1p-8 : 1e-6;
}

/// The dearest step after plans are final.
std::int64_t launches_of(const Trained& trained) {
  std::int64_t most = 0;
  for (std::size_t step = kFinal; step < trained.steps.size(); ++step)
    most = std::max(most, trained.steps[step].all_launches());
  return most;
}

/// All tensors are coded here, so that rows need not say it.
std::string name_of_row(const Strategy& strategy) {
  std::string name = strategy.text;
  for (const char* said : {", dense_below=0", "dense_below=0, ", "(dense_below=0)"})
    if (const auto at = name.find(said); at != std::string::npos)
      name.erase(at, std::string(said).size());
  return name;
}
/// Measured times give other buckets, so a row leaves room for these.
double room_of_row(const Strategy& strategy) {
  if (strategy.is_kfac()) return 1.25;
  return is_planned_by_times(strategy) && !strategy.has("horovod") ? 2 : 1;
}

class SimulatedRegistry : public testing::TestWithParam<int> {};

TEST_P(SimulatedRegistry, TrainsAsOnTheCpu) {
  const torch_adapter::Warnings quiet;
  const PageTable table("tests/simulated_device/launches.txt", "A small network");
  on_devices(GetParam(), [&](Communicator& c, at::Device where) {
    for (const Strategy& strategy : strategies(c.size())) {
      const Trained cpu = train(c, strategy, at::kCPU);
      const Trained found = train(c, strategy, where);
      const std::string title = fmt::format("{}, {} ranks", strategy.text, c.size());
      EXPECT_LE(torch_adapter::relative_error(found.weights, cpu.weights),
                most_between(strategy, c.size()))
          << title;
      EXPECT_EQ(found.conflicts, "") << title;
      for (std::size_t step = 0; step < found.steps.size(); ++step)
        for (const auto& [wait, times] : found.steps[step].host_waits)
          EXPECT_TRUE(is_named(strategy, wait, found.has_new_plan[step]))
              << title << ", step " << step << ": " << times << " x " << wait;
      if (c.rank() == 0 && c.size() == 2)
        table.hold(name_of_row(strategy), {launches_of(found)}, room_of_row(strategy));
    }
  });
  if (GetParam() == 2) table.expect_no_others();
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedRegistry, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace linerate::simulated
