// Reads a Strategy once and makes Plans by it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/plan/passes.hpp"
#include "linerate/plan/registry.hpp"
#include "linerate/plan/step_kinds.hpp"

namespace linerate::plan {

/// What a strategy's compression amounts to, over all gradients of a Workload.
struct Compressed {
  double ratio = 1;     // dense bytes / payload bytes
  bool gather = false;  // payloads are gathered: each rank decodes those of all
  double encode_s = 0;
  double decode_s = 0;  // of one payload
};

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
  /// What its codec or compressor makes of a Workload's gradients. Absent if nothing, or only
  /// wire=, shrinks payloads.
  std::optional<Compressed> compressed(const doc::Workload& workload) const;
  /// Of its codec or compressor: "topk"; empty if it has none.
  std::string coding_name() const;
  /// plan::left_dense() of its compressor.
  std::string left_dense(const doc::Workload& workload) const;
  /// Those of caveats() that are about its codec, compressor or cast. They say where coding counts
  /// as free or takes its price from elsewhere, and what stays dense.
  [[nodiscard]] std::vector<std::string> coding_caveats(const doc::Workload& workload) const;
  /// Whether its compressor has no price of its own and counts at the least that any compressor
  /// costs (is_bound_from_below()).
  [[nodiscard]] bool coding_is_bound() const;
  /// doc::CodecCost::spread of its codec, compressor or cast; 1: none.
  [[nodiscard]] double coding_spread() const;
  /// Says for people how the plan is not exact or what the Workload left open.
  [[nodiscard]] std::vector<std::string> caveats(const doc::Workload& workload,
                                                 const cost::CostModel& cost, int ranks = 1) const;
  /// Whether it preconditions gradients.
  bool preconditions() const { return kfac_.has_value(); }
  /// If not, the links of a Cluster do not change its Plans.
  bool plans_by_cost() const { return traits_.plans_by == PlansBy::cost || compression_; }

 private:
  friend class PlanSeries;
  void read_extra(const doc::Component&, const doc::Cluster&);
  std::optional<Curvature> curvature(const doc::Workload&, const cost::CostModel&, int ranks) const;
  /// `every`: of the other collectives.
  StepKinds kinds(const std::vector<int>& every) const;
  /// Throws UsageError for what cannot end within a turn of several.
  void check_turns(const doc::Workload&) const;
  std::string coding_cost_caveat() const;
  bool codes_alone() const;  // at a cost from elsewhere
  /// Whether gradients may leave in one message after backward instead, if that is sooner.
  bool may_send_at_once() const { return at_once_ && !codec_ && !compression_; }

  std::string text_;
  std::unique_ptr<const Exchange> exchange_;
  std::unique_ptr<const Exchange> at_once_;  // null: the exchange decides alone
  std::optional<CodecModel> codec_;
  std::optional<CompressionModel> compression_;
  std::optional<Kfac> kfac_;
  bool own_ratio_ = false;
  WireForm form_;
  Traits traits_;
};

/// Planner::traits() without a Cluster: codecs are not read. Throws UsageError for unknown names
/// and options of the exchange.
[[nodiscard]] Traits traits_of(const doc::Strategy& strategy);

}  // namespace linerate::plan
