// How fast plans are made and simulated. Checks its results first; see bench/README.md.
//   build/release/bench/sim [--json]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "figures.hpp"
#include "fitted_tables.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/models/workload.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"

namespace {

using namespace linerate;
using bench::report, bench::seconds_of;

constexpr bench::Require require{"sim"};

/// Median over repeats of the time of one call in a batch.
double median_seconds(int batch, const auto& call) {
  std::vector<double> samples;
  for (int repeat = 0; repeat < 15; ++repeat)
    samples.push_back(seconds_of([&] {
                        for (int i = 0; i < batch; ++i) call();
                      }) /
                      batch);
  return median(samples);
}

const std::filesystem::path kShared = "../shared";

/// The published log of ResNet-50 where it is, else the same 161 gradients from the model table.
doc::Workload resnet50(bool& published) {
  const auto folder = kShared / "data/per_gradient";
  published = std::filesystem::exists(folder / "resnet50.bk.log");
  if (published) {
    trace::InputFile log = trace::InputFile::open((folder / "resnet50.bk.log").string());
    return trace::read_per_gradient_log(
        log, {folder / "cuda_vec_add.log", 0.1280858, trace::StepTimeCovers::step});
  }
  models::WorkloadOptions options;
  options.step_s = 0.1280858;
  return models::workload("resnet50", options);
}

cost::CostModel zhang2020(const doc::Workload& w, double bits_per_s, double ratio = 1) {
  doc::Cluster c;
  c.network.bandwidth_bytes_per_s = bits_per_s / 8;
  cost::CostOptions options;
  options.compression_ratio = ratio;
  if (!w.add_cost.empty()) options.add_table = std::make_shared<const cost::AddTable>(w.add_cost);
  return cost::CostModel(c, options);
}

doc::Cluster link(double bits_per_s, double latency_s) {
  doc::Cluster c;
  c.network = {bits_per_s / 8, latency_s};
  return c;
}

const plan::PlanOptions kSteady{.first_step = false};

/// 16 ranks.
doc::Cluster fitted(double bits_per_s) {
  doc::Cluster c = link(bits_per_s, 20e-6);
  c.ranks = 16;
  bench::add_fitted_tables(c, 16 / bits_per_s);
  return c;
}

plan::Planner planner_of(const std::string& strategy) {
  return plan::Planner(doc::parse_strategy(strategy), doc::Cluster{});
}

void check_golden_table(const doc::Workload& w) {
  std::ifstream table(kShared / "checks/golden_resnet50.csv");
  std::string line;
  std::getline(table, line);
  const plan::Planner planner = planner_of("horovod");
  plan::PlanSeries series(planner, w, kSteady);
  sim::Simulator simulator;
  double worst = 0;
  int cells = 0;
  for (; std::getline(table, line); ++cells) {
    int ranks = 0;
    double bandwidth = 0, ratio = 0, expected = 0;
    require(std::sscanf(line.c_str(), "%d,%lf,%lf,%lf", &ranks, &bandwidth, &ratio, &expected) == 4,
            line);
    const cost::CostModel model = zhang2020(w, bandwidth, ratio);
    const double step = simulator.step_s(series.plan(model, ranks), model);
    worst = std::max(worst, std::abs(w.one_rank_step_s() / step - expected));
  }
  require(worst <= 1e-4, fmt::format("golden table off by {}", worst));
  fmt::print("checked: golden table, {} cells, worst {:.6f}\n", cells, worst);
}

void check_paths_agree(const doc::Workload& w) {
  const doc::Cluster cluster = link(10e9, 20e-6);
  const cost::CostModel model(cluster);
  doc::Cluster classes = cluster;
  classes.rank_speeds = {{3, 1, 0}, {5, 1, 1e-300}};  // two classes that work alike
  doc::Cluster fluid = cluster;
  fluid.contention = doc::Contention{1 + 1e-15, 1};
  sim::Simulator simulator;
  for (const char* strategy : {"bulk", "ddp", "horovod", "mg-wfbp", "optimal", "dear"}) {
    const doc::Plan plan = planner_of(strategy).plan(w, model, 16, kSteady);
    const double step = simulator.step_s(plan, model);
    for (const doc::Cluster& other : {classes, fluid})
      require(std::abs(simulator.step_s(plan, cost::CostModel(other)) / step - 1) < 1e-9,
              fmt::format("{}: the ways of simulating differ", strategy));
  }
  fmt::print("checked: sweep, classes and events give the same step\n");
}

/// Plan and simulate one configuration, the cost model made for it included.
double configuration_us(const doc::Workload& w, const std::string& strategy,
                        const cost::CostModel& base, double bits_per_s) {
  const plan::Planner planner = planner_of(strategy);
  plan::PlanSeries series(planner, w, kSteady);
  sim::Simulator simulator;
  int i = 0;
  return 1e6 * median_seconds(200, [&] {
           cost::CostOptions options = base.options();
           options.bandwidth = BytesPerSecond{bits_per_s / 8 * (1 + 1e-3 * (i % 7))};
           const cost::CostModel model = base.with(std::move(options));
           const int ranks = 16 << (i++ % 3);
           require(simulator.step_s(series.plan(model, ranks), model) > 0, "no time passed");
         });
}

void bench_configurations(const doc::Workload& w) {
  for (const double bits : {100e9, 10e9, 1e9}) {
    const auto at = [bits](const char* name) {
      return fmt::format("{}, {:g} Gbit/s", name, bits / 1e9);
    };
    const cost::CostModel zhang = zhang2020(w, bits);
    report({at("zhang2020 horovod"), configuration_us(w, "horovod", zhang, bits), 8, "us"});
    const cost::CostModel plain(link(bits, 20e-6));
    report({at("bulk"), configuration_us(w, "bulk", plain, bits), 3, "us"});
    for (const char* s : {"ddp", "horovod(timer=clock)", "mg-wfbp"})
      report({at(s), configuration_us(w, s, plain, bits), 8, "us"});
    const cost::CostModel tables(fitted(bits));
    report({at("optimal, fitted"), configuration_us(w, "optimal", tables, bits), 15, "us"});
    report({at("dear, fitted"), configuration_us(w, "dear", tables, bits), 100, "us"});
    report({at("dear, to its steady state"), configuration_us(w, "dear", plain, bits), 12, "us"});
    report({at("zhang2020 optimal"), configuration_us(w, "optimal", zhang, bits), 25, "us"});
    report({at("optimal"), configuration_us(w, "optimal", plain, bits), 25, "us"});
    doc::Cluster full = link(bits, 20e-6);
    full.ranks_per_node = 8;
    full.node = doc::Link{100e9, 5e-6};
    full.contention = doc::Contention{1.1, 1.3};
    for (const char* s : {"ddp", "optimal"})
      report({at(s) + ", contention, codec, two levels",
              configuration_us(w, fmt::format("{}+codec(ratio=8, encode=10GB/s, decode=12GB/s)", s),
                               cost::CostModel(full), bits),
              200, "us"});
  }
}

/// Backward and exchange in turn: every exchange waits for the task before it.
doc::Plan long_plan(std::size_t tasks) {
  doc::Plan plan;
  plan.ranks = 2;
  doc::TaskGraph& g = plan.variants.emplace_back();
  g.tasks.reserve(tasks);
  g.preds.reserve(tasks);
  g.pred_begin.reserve(tasks + 1);
  doc::Task compute;
  compute.kind = doc::TaskKind::backward;
  compute.resource = doc::Resource::compute;
  compute.seconds = 1e-3;
  doc::Task exchange;
  exchange.kind = doc::TaskKind::all_reduce;
  exchange.resource = doc::Resource::network;
  exchange.bytes = 1 << 20;
  while (g.tasks.size() + 1 < tasks) {
    const std::uint32_t before = g.add(compute);
    g.add(exchange, before);
  }
  return plan;
}

void bench_throughput() {
  const cost::CostModel model(link(10e9, 1e-6));
  double per_task_small = 0;
  for (const std::size_t tasks : {100'000ul, 1'000'000ul, 10'000'000ul}) {
    const doc::Plan plan = long_plan(tasks);
    const auto count = static_cast<double>(plan.variants.front().tasks.size());
    sim::Simulator simulator;
    // Backward takes 1 ms a pair and hides every exchange but the last, 20 us + 1 MiB at 10 Gbit/s.
    const double expected =
        std::floor(count / 2) * 1e-3 + model.collective(Collective::all_reduce, 1 << 20, 2).seconds;
    require(std::abs(simulator.step_s(plan, model) / expected - 1) < 1e-9, "long graph");
    const double per_task =
        median_seconds(tasks > 1'000'000 ? 1 : 3, [&] { simulator.step_s(plan, model); }) / count;
    if (tasks == 100'000) per_task_small = per_task;
    if (tasks == 1'000'000)
      report({"tasks a second at a million tasks", 1 / per_task, 3e7, "1/s", true});
    if (tasks == 10'000'000)
      report({"cost of a task at 1e7 over that at 1e5", per_task / per_task_small, 4, ""});
  }
}

/// Ranks x bandwidth x ratio x bucket size x schedule: 10 x 10 x 10 x 20 x 5.
double sweep_part(const doc::Workload& w, int part, int parts, std::size_t& count) {
  const cost::CostModel base(link(10e9, 20e-6));
  sim::Simulator simulator;
  double sum = 0;
  for (int bucket = part; bucket < 20; bucket += parts)
    for (const char* schedule : {"bulk", "ddp(bucket={0}MiB)", "horovod(threshold={0}MiB)",
                                 "horovod(threshold={0}MiB, timer=clock)", "optimal(cap={0}MiB)"})
      for (int ratio = 1; ratio <= 10; ++ratio) {
        plan::Planner planner = planner_of(fmt::format(fmt::runtime(schedule), 4 * (bucket + 1)));
        planner.set_compression_ratio(ratio);
        plan::PlanSeries series(planner, w, kSteady);
        for (int b = 0; b < 10; ++b) {
          cost::CostOptions options = base.options();
          options.bandwidth = BytesPerSecond{1e9 / 8 * (1 << b)};
          const cost::CostModel model = base.with(std::move(options));
          for (int ranks = 2; ranks <= 1024; ranks *= 2, ++count)
            sum += simulator.step_s(series.plan(model, ranks), model);
        }
      }
  return sum;
}

void bench_sweep(const doc::Workload& w) {
  std::size_t alone = 0;
  const double expected = sweep_part(w, 0, 1, alone);
  std::size_t counts[2] = {};
  double sums[2] = {};
  const double seconds = seconds_of([&] {
    std::thread other([&] { sums[1] = sweep_part(w, 1, 2, counts[1]); });
    sums[0] = sweep_part(w, 0, 2, counts[0]);
    other.join();
  });
  require(counts[0] + counts[1] == 100'000 && alone == 100'000, "count of configurations");
  require(std::abs((sums[0] + sums[1]) / expected - 1) < 1e-9, "two threads change the sum");
  report({"100,000 configurations on two threads", seconds, 0.4, "s"});
}

/// 1024 ranks, each with 300 tasks of its own durations: 200 computations, 100 collectives over
/// all.
void bench_different_ranks() {
  constexpr int kRanks = 1024, kComputes = 200, kCollectives = 100;
  doc::Plan plan;
  plan.ranks = kRanks;
  for (std::int32_t r = 0; r < kRanks; ++r) plan.group({fmt::format("rank {}", r), {{r}}});
  doc::TaskGraph& g = plan.variants.emplace_back();
  g.name = "different";
  double expected = 0;
  const cost::CostModel model(link(10e9, 1e-6));
  std::vector<double> free(kRanks);
  for (int k = 0; k < kCollectives; ++k) {
    std::vector<std::uint32_t> ends;
    for (int r = 0; r < kRanks; ++r) {
      doc::Task compute;
      compute.kind = doc::TaskKind::backward;
      compute.resource = doc::Resource::compute;
      compute.group = 1 + r;  // behind "whole"
      compute.seconds = 1e-4 * (1 + ((r * 7919 + k * 104729) % 1000) * 1e-3);
      for (int i = 0; i < kComputes / kCollectives; ++i) {
        g.add(compute);
        free[static_cast<std::size_t>(r)] += compute.seconds;
      }
      ends.push_back(static_cast<std::uint32_t>(g.tasks.size() - 1));
    }
    doc::Task exchange;
    exchange.kind = doc::TaskKind::all_reduce;
    exchange.resource = doc::Resource::network;
    exchange.bytes = 4 << 20;
    g.add(exchange);
    for (const std::uint32_t e : ends) g.add_predecessor_to_last(e);
    expected = std::max(expected, *std::max_element(free.begin(), free.end())) +
               model.collective(Collective::all_reduce, exchange.bytes, kRanks).seconds;
  }
  sim::Simulator simulator;
  double step = 0;
  const double seconds = median_seconds(1, [&] { step = simulator.simulate(plan, model).step_s; });
  require(std::abs(step / expected - 1) < 1e-9, "1024 different ranks");
  report({"1024 different ranks, 300 tasks each", seconds, 1, "s"});
}

}  // namespace

int main(int argc, char** argv) {
  return bench::exit_status([&] {
    bool published = false;
    const doc::Workload w = resnet50(published);
    require(w.gradients.size() == 161, "gradients of ResNet-50");
    if (published)
      check_golden_table(w);
    else
      fmt::print("the golden table is not checked: ../shared/data is absent\n");
    check_paths_agree(w);
    bench_configurations(w);
    bench_throughput();
    bench_sweep(w);
    bench_different_ranks();
    bench::print_json_if_asked(argc, argv);
  });
}
