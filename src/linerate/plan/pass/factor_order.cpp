// Merges groups of factors with buckets of gradients into one order on the network. An example:
// groups are ready at 2 and 6 ms and buckets at 4 and 9 ms. By readiness the order is group,
// bucket, group, bucket. If the buckets from the second one on wait, it is the same. If all wait,
// both groups come first.
#include "linerate/plan/pass/factor_order.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

/// For each block, the last transfer that brings a part of its gradient; -1 if none does.
std::vector<std::int32_t> last_of_blocks(const PassInput& input, const StepDraft& step,
                                         const std::vector<std::int32_t>& transfer_of_bucket) {
  std::vector<std::int32_t> of_gradient(input.workload.gradients.size(), -1);
  for (std::size_t b = 0; b < transfer_of_bucket.size(); ++b) {
    const doc::Payload& bucket = step.graph->payloads[b];
    for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
      of_gradient[to_index(step.graph->members[to_index(m)])] = transfer_of_bucket[b];
  }
  std::vector<std::int32_t> last;
  for (const PlannedBlock& block : input.curvature->blocks) {
    last.push_back(-1);
    for (const std::int32_t p : block.gradients)
      last.back() = std::max(last.back(), of_gradient[to_index(p)]);
  }
  return last;
}

}  // namespace

void order_by_readiness(const FactorTraffic& traffic, std::vector<FactorGroup>& groups) {
  const std::vector<Transfer>& buckets = traffic.gradients();
  std::size_t b = 0;
  for (FactorGroup& group : groups) {
    while (b < buckets.size() && buckets[b].ready_s <= group.ready_s) ++b;
    group.bucket = b;
  }
}

void let_buckets_wait(std::size_t from, std::vector<FactorGroup>& groups) {
  for (FactorGroup& group : groups) group.bucket = std::min(group.bucket, from);
}

FactorArrivals arrivals_of(const PassInput& input, const StepDraft& step,
                           const FactorTraffic& traffic, const std::vector<FactorGroup>& groups) {
  const Curvature& curvature = *input.curvature;
  const auto seconds_of = traffic.seconds_of_sums();
  FactorArrivals arrivals{{},
                          std::vector<std::int32_t>(to_index(curvature.factors()), -1),
                          {},
                          traffic.backward_end_s()};
  std::vector<std::int32_t> transfer_of;  // by bucket
  const auto send_buckets_before = [&](std::size_t end) {
    while (transfer_of.size() < end) {
      arrivals.transfers.push_back(traffic.gradients()[transfer_of.size()]);
      transfer_of.push_back(static_cast<std::int32_t>(arrivals.transfers.size()) - 1);
    }
  };
  for (const FactorGroup& group : groups) {
    send_buckets_before(group.bucket);
    std::int64_t elements = 0;
    for (const std::int32_t f : group.members) {
      elements += curvature.sent_elements(f);
      arrivals.after[to_index(f)] = static_cast<std::int32_t>(arrivals.transfers.size());
    }
    arrivals.transfers.push_back(
        {group.ready_s, seconds_of(elements, static_cast<std::int64_t>(group.members.size()))});
  }
  send_buckets_before(traffic.gradients().size());
  arrivals.gradient_after = last_of_blocks(input, step, transfer_of);
  return arrivals;
}

}  // namespace linerate::plan
