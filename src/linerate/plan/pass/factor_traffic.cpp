// When gradients need the network during backward, for fusion of factors: sums of factors travel in
// the gaps that gradients leave. Times come from adding up the compute lane, not from a simulation,
// as the Plan is not whole yet.
#include "linerate/plan/pass/factor_traffic.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/cost/model_curve.hpp"
#include "linerate/plan/pass/tensor_times.hpp"

namespace linerate::plan {

// A bucket may be ready before the one before it, and leaves after it. So ready times are made to
// ascend.
FactorTraffic::FactorTraffic(const PassInput& input, const StepDraft& step,
                             std::span<const Handle> computed)
    : input_(input), step_(step), computed_(computed) {
  add_lane();
  double latest_s = 0;
  for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
    const doc::Task& send = step.tasks[step.exchanges[b].send];
    latest_s = std::max(latest_s, ready_s_of(b));
    gradients_.push_back(
        {latest_s, cost::cost_curve(input.cost, collective_of(send.kind), input.ranks, send.wire)
                           .seconds(static_cast<double>(send.priced_bytes())) +
                       static_cast<double>(tensors_of(*step.graph, send)) * tensor_s()});
  }
}

// Adds up the compute lane as if nothing in it waited: after each task, the seconds since the step
// began.
void FactorTraffic::add_lane() {
  for (Handle h = step_.tasks.first(doc::Resource::compute); h != kNoTask;
       h = step_.tasks.behind(h)) {
    backward_end_s_ += step_.tasks[h].seconds;
    const auto index = to_index(h);
    if (end_s_.size() <= index) end_s_.resize(index + 1, -1);
    end_s_[index] = backward_end_s_;
    if (h == step_.backward_end) return;
  }
}

/// When a task ends. For a task of another lane, or after backward, the end of backward.
double FactorTraffic::end_of(Handle h) const {
  const auto index = to_index(h);
  return index < end_s_.size() && end_s_[index] >= 0 ? end_s_[index] : backward_end_s_;
}

// An exchange may hold a bucket back. Its seconds count from the start of backward, which is the
// end of forward.
double FactorTraffic::ready_s_of(std::size_t bucket) const {
  const double ready = end_of(step_.exchanges[bucket].ready);
  if (step_.not_before.empty() || input_.first_step) return ready;
  return std::max(ready, end_of(step_.forward.back()) + step_.not_before[bucket]);
}

// f(elements, tensors): a sum's message, and what each tensor adds to it.
std::function<double(std::int64_t, std::int64_t)> FactorTraffic::seconds_of_sums() const {
  return [curve = cost::cost_curve(input_.cost, Collective::all_reduce, input_.ranks),
          each_s = tensor_s(),
          element = size_of(input_.curvature->dtype)](std::int64_t n, std::int64_t tensors) {
    return curve.seconds(static_cast<double>(n * element)) + static_cast<double>(tensors) * each_s;
  };
}

// After backward nothing computes next to the network, so messages are not slowed any more.
Channel FactorTraffic::channel() const {
  const auto& contention = input_.cost.cluster().contention;
  return {backward_end_s_, contention ? contention->communication_slowdown : 1};
}

}  // namespace linerate::plan
