// In which order groups of factors and buckets of gradients go over the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "linerate/plan/pass/factor_traffic.hpp"

namespace linerate::plan {

/// Factors that travel together.
struct FactorGroup {
  std::vector<std::int32_t> members;
  double ready_s = 0;
  std::size_t bucket = 0;  // they leave before it; beyond the last: after all buckets
};

/// Groups and buckets leave as they get ready, a group after the buckets that are ready when it is.
void order_by_readiness(const FactorTraffic& traffic, std::vector<FactorGroup>& groups);
/// That order, in which the buckets from this one on wait for all groups.
void let_buckets_wait(std::size_t from, std::vector<FactorGroup>& groups);
/// The network up to the last of both.
FactorArrivals arrivals_of(const PassInput& input, const StepDraft& step,
                           const FactorTraffic& traffic, const std::vector<FactorGroup>& groups);

}  // namespace linerate::plan
