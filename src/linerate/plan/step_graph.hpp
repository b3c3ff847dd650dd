// From buckets to the task graph of a step: encode, exchange, decode around the computation.
#pragma once

#include <optional>
#include <vector>

#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {

struct StepGraphInput {
  const doc::Workload& workload;
  const Payload& payload;
  const std::optional<Codec>& codec;
  std::span<const double> not_before;  // Fusion::not_before
  int ranks = 1;
};

/// forward, backward and the exchange of each bucket once its last gradient is there; update and
/// tail when all are done. The graph holds the buckets already; their order is the order on the
/// wire. at_the_end: every exchange waits for the whole backward pass.
void build_overlapped(const StepGraphInput& input, Schedule schedule, doc::TaskGraph& graph);

/// Reduce-scatters under backward, all-gathers in forward order behind them, with edges to the
/// updates at the head of the next step. Where the Workload times its layers, a layer waits for the
/// buckets of its own parameters; else forward is split over the buckets as backward is. Throws
/// UsageError for payloads that cannot be summed.
void build_decoupled(const StepGraphInput& input, doc::TaskGraph& graph);

}  // namespace linerate::plan
