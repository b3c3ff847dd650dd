// Plans a step, predicts how long it takes, and adds numbers over ranks that are threads.
#include <cstdio>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/version.hpp"

using namespace linerate;

int main() {
  doc::Workload workload;
  workload.name = "one layer";
  workload.gradients = {{.name = "weight", .elements = 1 << 20, .ready_s = 1e-3}};
  workload.backward_s = 1e-3;
  doc::Cluster cluster;
  cluster.network = {.bandwidth_bytes_per_s = 1.25e9, .latency_s = 20e-6};
  const doc::Plan plan = plan::make_plan(workload, cluster, doc::parse_strategy("ddp"), 2);
  const double step_s = sim::simulate(plan, cost::CostModel(cluster)).step_s;

  comm::run_ranks(2, [](comm::Communicator& ranks) { ranks.barrier("ready")->wait(); });
  std::printf("linerate %s: a step of %.2f ms\n", std::string(kVersion).c_str(), step_s * 1e3);
}
