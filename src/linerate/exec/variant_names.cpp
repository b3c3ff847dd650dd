#include "linerate/exec/variant_names.hpp"

#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::exec {
namespace {

std::vector<std::string> parameters_of(const doc::Plan& plan, const doc::TaskGraph& graph,
                                       const doc::Task& task) {
  std::vector<std::string> names;
  for (const std::int32_t p : gradients_of(plan, graph, task))
    names.push_back(plan.gradient_names[to_index(p)]);
  return names;
}

}  // namespace

VariantNames::VariantNames(const doc::Plan& plan, const doc::TaskGraph& graph, Recorder* recorder)
    : titles(graph.tasks.size()),
      names(graph.tasks.size(), -1),
      sets(graph.tasks.size(), -1),
      backward_of(plan.gradient_names.size(), kNoTask),
      factor_of(2 * plan.blocks.size(), kNoTask) {
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    const doc::Task& task = graph.tasks[i];
    if (task.kind == doc::TaskKind::backward && task.subject == doc::Subject::gradients)
      for (std::int32_t p = task.first; p <= task.last; ++p) backward_of[to_index(p)] = i;
    if (task.kind == doc::TaskKind::factor)
      for (std::int32_t f = task.first; f <= task.last; ++f) factor_of[to_index(f)] = i;
    const bool executed = task.origin == doc::Origin::executed;
    if (executed) titles[i] = title_of(plan, graph, task);
    // Whoever observes the others records them.
    if (!recorder || !(executed || task.kind == doc::TaskKind::factor)) continue;
    names[i] = recorder->name_id(event_name_of(plan, graph, task));
    const std::vector<std::string> parameters = parameters_of(plan, graph, task);
    if (!parameters.empty()) sets[i] = recorder->set_id(parameters);
  }
}

}  // namespace linerate::exec
