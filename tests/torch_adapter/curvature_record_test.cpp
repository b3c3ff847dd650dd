// Recorded steps with K-FAC: what the Plan's curvature tasks took.
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <map>
#include <set>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/kfac.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::TaskKind;
using Names = std::multiset<std::string>;

constexpr int kRecordedSteps = 6;
const std::set kKinds{TaskKind::factor, TaskKind::inverse, TaskKind::precondition};

std::map<int, Names> recorded(const doc::Timeline& timeline) {
  std::map<int, Names> steps;
  for (const doc::Event& e : timeline.events) {
    EXPECT_LT(e.start_ns, e.end_ns);
    if (kKinds.contains(e.kind))
      steps[e.step].insert(timeline.names[static_cast<std::size_t>(e.name)]);
  }
  return steps;
}

/// Of the tasks that a rank has.
Names planned(const doc::Plan& plan, const std::string& variant, int rank) {
  const auto at = std::find_if(plan.variants.begin(), plan.variants.end(),
                               [&](const doc::TaskGraph& g) { return g.name == variant; });
  const doc::TaskGraph& graph = *at;
  const doc::VariantIndex index(plan, graph, rank);
  Names names;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i)
    if (index.has[i] && kKinds.contains(graph.tasks[i].kind))
      names.insert(doc::event_name_of(plan, graph, graph.tasks[i]));
  return names;
}

TEST(CurvatureRecord, HasEveryCurvatureTaskThatThePlanHas) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
    KFAC pre(*net, {.loss_average = LossAverage{}, .learning_rate = [](auto) { return 0.01; }});
    exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
    DataParallel parallel(*net, communicator,
                          {.strategy = "ddp+kfac(mpd, factors=2, inverses=4)",
                           .preconditioner = &pre,
                           .recorder = &recorder});
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    std::vector<StepReport> reports;
    for (int step = 0; step < kRecordedSteps; ++step) {
      recorder.begin_step(step);
      net->forward(torch::ones({4, 5})).square().sum().backward();
      reports.push_back(parallel.step(pre, optimizer));
    }
    const auto steps = recorded(recorder.timeline());
    for (int step = 0; step < kRecordedSteps; ++step) {
      const StepReport& report = reports[static_cast<std::size_t>(step)];
      EXPECT_EQ(steps.at(step), planned(parallel.plan(), report.variant, communicator.rank()))
          << report.variant;
      EXPECT_EQ(report.factors.size(), step % 2 == 0 ? 4u : 0u) << "A and G of two layers";
    }
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
