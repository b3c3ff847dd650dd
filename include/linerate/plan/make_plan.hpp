// Up to which size K-FAC takes factors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::plan {

/// A layer with a larger factor is left to the optimizer, unless a strategy says otherwise: 4,096
/// inputs and the bias. Above that, d^3 and d^2 take more of a step than they bring at equal time.
/// Convolutions of 512 x 3 x 3 inputs (docs/kfac.md) and projections to a vocabulary are above it.
inline constexpr std::int64_t kLargestFactor = 4097;

// Workload + Cluster + Strategy -> Plan. Pure and deterministic: the same input gives the same
// bytes on every rank; no clock, thread or environment.

/// What training does in each step besides exchanging gradients (DataParallel); simulations of
/// other people's jobs leave it out.
struct Housekeeping {
  std::int64_t buffer_bytes = 0;  // rank 0's buffers for everybody, after backward; 0: none
};

/// What a Plan holds besides the exchange.
struct PlanOptions {
  /// What optimal and mg-wfbp price exchanges with; absent: CostModel(cluster).
  std::optional<cost::CostModel> cost = {};
  /// Plan the variant of the first step too.
  bool first_step = true;
  /// What a training runtime does besides; absent: a job as its Workload describes it.
  std::optional<Housekeeping> housekeeping = {};
};

/// Names of variants. With housekeeping each has a second one, "...-weighted", for steps in which
/// the ranks' batches differ in size.
inline constexpr std::string_view kSteady = "steady";
using doc::kFirstStep;
/// The variant's name for steps whose ranks differ in their samples.
[[nodiscard]] std::string weighted(std::string_view variant);
/// Adds a phase to a name; an empty phase adds nothing. A compressor whose steps differ has phases
/// such as "....warm-up". K-FAC has "....factors" for steps without inverses and "....stale" for
/// steps without factors.
[[nodiscard]] std::string in_phase(std::string_view variant, std::string_view phase);

/// Makes the Plan. Its variants are "steady", and before it "first-step", which step 0 runs. The
/// first step's buckets are cut before a backward pass was seen (ddp: reverse registration order)
/// and sent when backward is over. Both exist in every phase of a compressor that has several, and
/// for every kind of step of K-FAC. The schedule is that of the phases and intervals. "kfac(spd)"
/// alone is "ddp+kfac(spd)". Throws UsageError for unknown strategies and options, and for K-FAC on
/// a Workload without blocks; InputError for a Workload without gradients.
[[nodiscard]] doc::Plan make_plan(const doc::Workload& workload, const doc::Cluster& cluster,
                                  const doc::Strategy& strategy, int ranks,
                                  const PlanOptions& options = {});

}  // namespace linerate::plan
