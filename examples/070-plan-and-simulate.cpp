// What a step would take under other strategies, without running it: a job and a network written by
// hand, a Plan for each strategy, and the Plan in virtual time.
//
//   $ ./070-plan-and-simulate
//   eight layers on 8 ranks; a rank alone takes 74.0 ms
//   bulk            step 146 ms, of which the network is busy 72.0 ms
//   wfbp            step 106 ms, of which the network is busy 73.9 ms
//   ddp(wire=fp16)  step 82.0 ms, of which the network is busy 37.2 ms
//   dear            step 92.8 ms, of which the network is busy 73.9 ms
//   ddp             step 108 ms, of which the network is busy 73.1 ms
//   the collectives of the last one on rank 0, in time since the step began:
//   all-reduce of 16.0 MB: 30.0 ms to 39.2 ms
//   all-reduce of 32.0 MB: 42.0 ms to 60.2 ms
//   all-reduce of 32.0 MB: 60.2 ms to 78.4 ms
//   all-reduce of 32.0 MB: 78.4 ms to 96.6 ms
//   all-reduce of 16.0 MB: 96.6 ms to 106 ms
#include <cstdio>

#include "linerate/core/text.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/sim/simulate.hpp"

using namespace linerate;

/// Eight layers of 4 million parameters each, 3 ms forward and 6 ms backward a layer.
doc::Workload eight_layers() {
  doc::Workload w;
  w.name = "eight layers";
  for (int i = 0; i < 8; ++i)
    w.layers.push_back(
        {.name = "layer" + std::to_string(i), .forward_s = 3e-3, .backward_s = 6e-3});
  for (int i = 7; i >= 0; --i)  // backward ends with the first layer
    w.gradients.push_back({.name = w.layers[i].name + ".weight",
                           .elements = 4'000'000,
                           .layer = i,
                           .registration = i,
                           .ready_s = 6e-3 * (8 - i)});
  w.forward_s = 24e-3;
  w.backward_s = 48e-3;
  w.update_s = 2e-3;
  return w;
}

int main() {
  const doc::Workload workload = eight_layers();
  doc::Cluster cluster;
  cluster.network = {.bandwidth_bytes_per_s = parse_rate("25Gbit/s").value, .latency_s = 20e-6};
  const cost::CostModel model(cluster);
  constexpr int kRanks = 8;

  std::printf("%s on %d ranks; a rank alone takes %s\n", workload.name.c_str(), kRanks,
              format_time(workload.one_rank_step_s()).c_str());
  doc::Plan plan;
  for (const char* text : {"bulk", "wfbp", "ddp(wire=fp16)", "dear", "ddp"}) {
    plan = plan::make_plan(workload, cluster, doc::parse_strategy(text), kRanks);
    const sim::SimResult result = sim::simulate(plan, model);
    std::printf("%-15s step %s, of which the network is busy %s\n", text,
                format_time(result.step_s).c_str(), format_time(result.communication_s).c_str());
  }

  std::printf("the collectives of the last one on rank 0, in time since the step began:\n");
  const doc::Timeline timeline = sim::predicted_timeline(plan, workload, model);
  for (const doc::Event& e : timeline.events)
    if (e.rank == 0 && e.resource == doc::Resource::network)
      std::printf("%s of %s: %s to %s\n", std::string(name_of(e.kind)).c_str(),
                  format_size(static_cast<double>(e.bytes)).c_str(),
                  format_time(static_cast<double>(e.start_ns) * 1e-9).c_str(),
                  format_time(static_cast<double>(e.end_ns) * 1e-9).c_str());
}
