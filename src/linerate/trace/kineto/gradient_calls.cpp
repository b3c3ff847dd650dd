#include "linerate/trace/kineto/gradient_calls.hpp"

#include <algorithm>

namespace linerate::trace {

GradientCalls::GradientCalls(const KinetoTrace& t) {
  std::vector<Span> steps;
  for (const CpuOp& op : t.ops) {
    const NameInfo& name = t.names[op.name];
    if (name.kind == NameKind::evaluate) backward_.push_back(op.span.start_ns);
    if (name.kind == NameKind::optimizer && name.text.starts_with("Optimizer.step#"))
      steps.push_back(op.span);
  }
  std::sort(backward_.begin(), backward_.end());
  optimizer_ = union_of(std::move(steps));  // one may wrap another
}

bool GradientCalls::may_carry(std::int64_t called_ns) const {
  if (backward_.empty() || optimizer_.empty()) return true;
  const auto after =
      std::upper_bound(optimizer_.begin(), optimizer_.end(), Span{called_ns, INT64_MAX});
  if (after == optimizer_.begin()) return backward_.front() <= called_ns;
  const Span& last = *(after - 1);
  if (called_ns < last.end_ns) return true;  // asked for by the optimizer itself
  const auto node = std::lower_bound(backward_.begin(), backward_.end(), last.end_ns);
  return node != backward_.end() && *node <= called_ns;
}

}  // namespace linerate::trace
