#include "linerate/trace/kineto/gradient_calls.hpp"

#include <algorithm>
#include <map>

namespace linerate::trace {

/// Collects begins of autograd's nodes and spans of optimizers' steps. An optimizer may run
/// backward inside its step (a closure, as L-BFGS has). Such a step ends no turn, so it is not
/// among `updates_`. An optimizer that wraps another one counts once.
GradientCalls::GradientCalls(const KinetoTrace& t) {
  std::map<std::int64_t, std::vector<Span>> steps, nodes;  // by thread
  for (const CpuOp& op : t.ops) {
    const NameInfo& name = t.names[op.name];
    if (name.kind == NameKind::evaluate)
      backward_.push_back(op.span.start_ns), nodes[op.tid].push_back(op.span);
    if (name.kind == NameKind::optimizer && name.text.starts_with("Optimizer.step#"))
      steps[op.tid].push_back(op.span);
  }
  std::sort(backward_.begin(), backward_.end());
  for (auto& [tid, spans] : steps) {
    optimizer_.insert(optimizer_.end(), spans.begin(), spans.end());
    const SpanSet backward = union_of(nodes[tid]);
    for (const Span& step : union_of(std::move(spans)))
      if (clipped(backward, step).empty() && !backward_in(step)) updates_.push_back(step);
  }
  optimizer_ = union_of(std::move(optimizer_));  // one may wrap another
  updates_ = union_of(std::move(updates_));
}

bool GradientCalls::backward_in(Span window) const {
  const auto node = std::lower_bound(backward_.begin(), backward_.end(), window.start_ns);
  return node != backward_.end() && *node <= window.end_ns;
}

int GradientCalls::turn_of(std::int64_t step_began_ns, std::int64_t called_ns) const {
  int turn = 0;
  std::int64_t since = step_began_ns;
  for (auto update =
           std::lower_bound(updates_.begin(), updates_.end(), Span{step_began_ns, INT64_MIN});
       update != updates_.end() && update->end_ns <= called_ns; ++update)
    if (backward_in({since, update->start_ns}) && backward_in({update->end_ns, called_ns}))
      ++turn, since = update->end_ns;
  return turn;
}

bool GradientCalls::may_carry(std::int64_t called_ns) const {
  if (backward_.empty() || optimizer_.empty()) return true;
  const auto after =
      std::upper_bound(optimizer_.begin(), optimizer_.end(), Span{called_ns, INT64_MAX});
  if (after == optimizer_.begin()) return backward_.front() <= called_ns;
  const Span& last = *(after - 1);
  if (called_ns < last.end_ns) return true;  // asked for by the optimizer itself
  return backward_in({last.end_ns, called_ns});
}

}  // namespace linerate::trace
