// Models that are trained in turn within a step: each as if it were trained by itself.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "agreement/cases.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

/// Backward of `second` begins `gap_s` after the last gradient of `first`.
doc::Workload in_turn(const doc::Workload& first, double gap_s, const doc::Workload& second) {
  doc::Workload both = first;
  for (doc::Gradient g : second.gradients) {
    g.turn = 1;
    g.ready_s += first.backward_s + gap_s;
    both.gradients.push_back(g);
  }
  both.backward_s = both.gradients.back().ready_s;
  return both;
}

double simulated_s(const doc::Workload& workload, const doc::Cluster& cluster,
                   const std::string& strategy) {
  const cost::CostModel model(cluster);
  return simulate(plan::make_plan(workload, cluster, doc::parse_strategy(strategy), 2), model)
      .step_s;
}

TEST(ModelsInTurn, TakeAsLongAsEachByItself) {
  doc::Workload a = support::workload_of(support::resnet50_parameters(), 1e-4);
  const doc::Workload b = support::workload_of({5'000'000, 100, 2'000'000, 70'000, 300'000}, 2e-3);
  a.forward_s = 8e-3;
  constexpr double kGap_s = 5e-3;
  const doc::Workload both = in_turn(a, kGap_s, b);
  ASSERT_EQ(both.turns(), 2);
  const doc::Cluster cluster = support::cluster_of(support::Setting{}, 2);
  int held = 0, refused = 0;
  for (const std::string& strategy : support::strategies()) {
    if (strategy.starts_with("horovod")) continue;  // its timer goes on through the step
    SCOPED_TRACE(strategy);
    const doc::Strategy parsed = doc::parse_strategy(strategy);
    const bool plain = parsed.exchange.name != "dear" &&
                       (parsed.extras.empty() || parsed.extras.front().name == "codec");
    if (!plain) {
      EXPECT_THROW(static_cast<void>(plan::make_plan(both, cluster, parsed, 2)), UsageError);
      ++refused;
      continue;
    }
    // What decodes on the device does so among what comes next, which may wait a little for it.
    const bool on_device = strategy.find("on=compute") != std::string::npos;
    const double apart =
        simulated_s(a, cluster, strategy) + kGap_s + simulated_s(b, cluster, strategy);
    const double together = simulated_s(both, cluster, strategy);
    if (on_device)
      EXPECT_LE(together, apart * 1.001);
    else
      EXPECT_NEAR(together, apart, 1e-9);
    ++held;
  }
  fmt::print("{} strategies hold, {} refuse\n", held, refused);
  EXPECT_GE(held, 10);
}

}  // namespace
}  // namespace linerate::sim
