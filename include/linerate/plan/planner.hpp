// Workload + Cluster + Strategy -> Plan. Pure and deterministic: the same input gives the same
// bytes on every rank; no clock, thread or environment.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/passes.hpp"
#include "linerate/plan/registry.hpp"
#include "linerate/plan/step_kinds.hpp"

namespace linerate::plan {

struct PlanOptions {
  /// What optimal and mg-wfbp price exchanges with; absent: CostModel(cluster).
  std::optional<cost::CostModel> cost = {};
  /// Plan the variant of the first step too.
  bool first_step = true;
  /// What a training runtime does besides; absent: a job as its Workload describes it.
  std::optional<Housekeeping> housekeeping = {};
};

/// What a strategy's compression amounts to, over all gradients of a Workload.
struct Compressed {
  double ratio = 1;     // dense bytes / payload bytes
  bool gather = false;  // payloads are gathered: each rank decodes those of all
  double encode_s = 0;
  double decode_s = 0;  // of one payload
};

/// Names of variants. With housekeeping each has a second one, "...-weighted", for steps in which
/// the ranks' batches differ in size.
inline constexpr std::string_view kSteady = "steady";
using doc::kFirstStep;
std::string weighted(std::string_view variant);
/// Adds a phase to a name: of a compressor whose steps differ, "....warm-up"; of K-FAC's steps
/// without inverses, "....factors", and without factors, "....stale"; an empty phase adds nothing.
std::string in_phase(std::string_view variant, std::string_view phase);

/// Variants: "steady", and before it "first-step", which step 0 runs: buckets as they are cut
/// before a backward pass was seen (ddp: reverse registration order), sent when backward is over.
/// Both in every phase of a compressor that has several, and for every kind of step of K-FAC; the
/// schedule is that of the phases and intervals. "kfac(spd)" alone is "ddp+kfac(spd)". Throws
/// UsageError for unknown strategies and options, and for K-FAC on a Workload without blocks,
/// InputError for a Workload without gradients.
doc::Plan make_plan(const doc::Workload& workload, const doc::Cluster& cluster,
                    const doc::Strategy& strategy, int ranks, const PlanOptions& options = {});

/// A Strategy read once: what it is, and Plans; PlanSeries makes many of one Workload.
class Planner {
 public:
  /// codec(name=...) may name the Cluster's codecs.
  Planner(const doc::Strategy& strategy, const doc::Cluster& cluster);

  /// A codec of this ratio without cost joins the strategy, or gives its codec the ratio it lacks.
  /// Throws UsageError when the strategy's codec has a ratio of its own.
  void set_compression_ratio(double ratio);

  /// `options.cost` is not looked at: `cost` prices.
  doc::Plan plan(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                 const PlanOptions& options) const;

  /// Canonical text of the strategy.
  const std::string& text() const { return text_; }
  /// The registry's lines of its parts, joined; a wire type narrower than f32 changes convergence.
  const Traits& traits() const { return traits_; }
  /// Exchange::bucket_bytes().
  std::optional<std::int64_t> bucket_bytes() const { return exchange_->bucket_bytes(); }
  /// The type that wire= sends gradients in; absent: their own.
  std::optional<DType> wire() const { return form_.wire; }
  /// By its codec or compressor; absent if nothing or only wire= shrinks payloads.
  std::optional<Compressed> compressed(const doc::Workload& workload) const;
  /// Of its codec or compressor: "topk"; empty if it has none.
  std::string coding_name() const;
  /// plan::left_dense() of its compressor.
  std::string left_dense(const doc::Workload& workload) const;
  /// Of caveats() those of its codec, compressor or cast: where its coding counts as free or as
  /// known from elsewhere, and what it leaves dense.
  std::vector<std::string> coding_caveats(const doc::Workload& workload) const;
  /// Says for people how the plan is not exact or what the Workload left open.
  std::vector<std::string> caveats(const doc::Workload& workload, const cost::CostModel& cost,
                                   int ranks = 1) const;
  /// Whether it preconditions gradients.
  bool preconditions() const { return kfac_.has_value(); }
  /// If not, the links of a Cluster do not change its Plans.
  bool plans_by_cost() const { return traits_.plans_by == PlansBy::cost || compression_; }

 private:
  friend class PlanSeries;
  void read_extra(const doc::Component&, const doc::Cluster&);
  std::optional<Curvature> curvature(const doc::Workload&, const cost::CostModel&, int ranks) const;
  StepKinds kinds() const;
  std::string coding_cost_caveat() const;
  bool codes_alone() const;  // at a cost from elsewhere

  std::string text_;
  std::unique_ptr<const Exchange> exchange_;
  std::optional<Codec> codec_;
  std::optional<Compression> compression_;
  std::optional<Kfac> kfac_;
  bool own_ratio_ = false;
  WireForm form_;
  Traits traits_;
};

/// Planner::traits() without a Cluster: codecs are not read. Throws UsageError for unknown names
/// and options of the exchange.
Traits traits_of(const doc::Strategy& strategy);

}  // namespace linerate::plan
