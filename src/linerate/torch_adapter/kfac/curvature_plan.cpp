// Reads a Plan once for CurvatureExchange: which ranks average and precondition each layer, and
// where each factor, inverse or direction lies in the payloads.
//
// Example: a payload of the inverses of factors 4, 5 and 7 with 10, 20 and 30 elements. They begin
// at 0, 10 and 30. Three statuses follow, so the payload has 63 elements, and factor 5's status is
// the second from the end.
#include "linerate/torch_adapter/kfac/curvature_plan.hpp"

#include <string_view>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_adapter {

CurvaturePlan::CurvaturePlan(std::shared_ptr<const doc::Plan> made, std::size_t blocks,
                             const ElementsOf& sizes)
    : plan(std::move(made)), preconditioning(blocks), averaging(blocks) {
  for (const doc::TaskGraph& graph : plan->variants) {
    note_ranks(graph);
    note_parts(graph, sizes);
    is_late = is_late || !graph.next_step.empty();
  }
}

void CurvaturePlan::note_ranks(const doc::TaskGraph& graph) {
  for (const doc::Task& task : graph.tasks) {
    const std::string_view operation = plan->operation_name(task);
    const bool averages = operation == "average-factors";
    if (task.subject == doc::Subject::payloads || (!averages && operation != "precondition"))
      continue;
    const std::int32_t last = doc::block_of_factor(task.last);
    for (std::int32_t b = doc::block_of_factor(task.first); b <= last; ++b) {
      std::vector<std::int32_t>& ranks = (averages ? averaging : preconditioning)[to_index(b)];
      if (!ranks.empty()) continue;
      for (const auto& part : plan->group_of(task).parts)
        ranks.insert(ranks.end(), part.begin(), part.end());
    }
  }
}

/// Members stand one after the other in their payload. After them a payload of inverses has a
/// status for each member, in the same order, so the last member's status is the last element.
void CurvaturePlan::note_parts(const doc::TaskGraph& graph, const ElementsOf& sizes) {
  Variant& variant = variants.emplace_back();
  variant.payloads.resize(graph.payloads.size());
  variant.inverses.resize(2 * averaging.size());
  variant.directions.resize(averaging.size());
  for (std::size_t p = 0; p < graph.payloads.size(); ++p) {
    const doc::Payload& payload = graph.payloads[p];
    const bool inverses = doc::holds_inverses(payload.content);
    const bool directions = payload.content == doc::Content::directions;
    if (!inverses && !directions && payload.content != doc::Content::factors) continue;
    std::int64_t begin = 0;
    for (std::int32_t m = payload.begin; m < payload.end; ++m) {
      const std::int32_t member = graph.members[to_index(m)];
      const std::int64_t elements = sizes(payload.content, member);
      const Part part{static_cast<std::int32_t>(p), member, begin, elements, payload.end - m};
      variant.payloads[p].push_back(part);
      if (inverses) variant.inverses[to_index(member)] = part;
      if (directions) variant.directions[to_index(member)] = part;
      begin += elements;
    }
  }
}

const CurvaturePlan::Variant& CurvaturePlan::of(const doc::TaskGraph& graph) const {
  const auto index = &graph - plan->variants.data();
  LINERATE_CHECK(index >= 0 && index < std::ssize(variants), "a graph of another plan");
  return variants[to_index(index)];
}

}  // namespace linerate::torch_adapter
