#include "own_floor.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"

namespace linerate::bench {
namespace {

using doc::Task;
using doc::TaskKind;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// By the name of the event; updates, which have none, under "update".
std::map<std::string, double> measured(const doc::Timeline& timeline) {
  std::map<std::string, std::vector<double>> all;
  for (const doc::Event& e : timeline.events) {
    const bool is_update = e.kind == TaskKind::update;
    if (e.name < 0 && !is_update) continue;
    all[is_update ? "update" : timeline.names[static_cast<std::size_t>(e.name)]].push_back(
        e.seconds());
  }
  std::map<std::string, double> medians;
  for (auto& [name, values] : all) medians[name] = median(std::move(values));
  return medians;
}

/// Moments count from the first gradient: what comes before it is what backward has left.
class Backward {
 public:
  Backward(const doc::Workload& ready, double backward_s) : ready_(ready) {
    const double known = ready.gradients.back().ready_s - ready.gradients.front().ready_s;
    shrink_ = known > backward_s ? backward_s / known : 1;
    before_s_ = backward_s - known * shrink_;
  }
  double seconds(std::int32_t gradient) const {
    if (gradient == 0) return before_s_;
    const auto p = static_cast<std::size_t>(gradient);
    return (ready_.gradients[p].ready_s - ready_.gradients[p - 1].ready_s) * shrink_;
  }

 private:
  const doc::Workload& ready_;
  double shrink_ = 1, before_s_ = 0;
};

void set_times(doc::Plan& plan, doc::TaskGraph& graph, const Backward& backward,
               const std::map<std::string, double>& times, double forward_s) {
  for (Task& task : graph.tasks) {
    if (doc::is_communication(task.kind)) continue;
    const bool is_gradient =
        task.kind == TaskKind::backward && task.subject == doc::Subject::gradients;
    const auto found =
        times.find(task.kind == TaskKind::update ? "update" : title_of(plan, graph, task));
    task.seconds = 0;
    if (task.kind == TaskKind::forward)
      task.seconds = std::exchange(forward_s, 0);
    else if (is_gradient)
      task.seconds = backward.seconds(task.first);
    else if (found != times.end())
      task.seconds = found->second;
  }
}

}  // namespace

std::optional<double> own_floor_s(const doc::Plan& whole, const doc::Workload& ready,
                                  const doc::Timeline& recorded, const ComputedParts& parts,
                                  BytesPerSecond line_rate) {
  doc::Plan plan = whole;
  plan.warm_up.clear();
  const std::map<std::string, double> times = measured(recorded);
  for (const std::int32_t v : plan.cycle) {
    doc::TaskGraph& graph = plan.variants[static_cast<std::size_t>(v)];
    if (!graph.next_step.empty()) return std::nullopt;
    set_times(plan, graph, {ready, std::max(0.0, parts.backward_s - parts.copy_s)}, times,
              parts.forward_s);
  }
  doc::Cluster wire;
  wire.ranks = plan.ranks;
  wire.network = {line_rate.value, 0};
  return sim::simulate(plan, cost::CostModel(wire)).step_s;
}

}  // namespace linerate::bench
