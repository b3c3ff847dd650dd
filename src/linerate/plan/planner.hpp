// Reads a Strategy once and makes Plans by it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/plan/passes.hpp"

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
  /// Throws UsageError for what cannot end within a turn of several.
  void check_turns(const doc::Workload&) const;
  std::string coding_cost_caveat() const;
  bool codes_alone() const;  // at a cost from elsewhere
  /// Of its codec, cast or first compressor; null: it has none, or none is known.
  const doc::CodecCost* coding_cost() const;
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

/// Throws InputError for a Workload without gradients.
void require_gradients(const doc::Workload& workload);

/// Planner::traits() without a Cluster: codecs are not read. Throws UsageError for unknown names
/// and options of the exchange.
[[nodiscard]] Traits traits_of(const doc::Strategy& strategy);

// Plans of one Workload by one strategy, for one network after another.

/// Makes once what its Plans have in common: names, kinds of steps, the computation. Memory is used
/// again: sweeps make thousands of Plans.
class PlanSeries {
 public:
  /// Borrows Planner and Workload. `options.cost` is not looked at. Throws InputError for a
  /// Workload without gradients.
  PlanSeries(const Planner& planner, const doc::Workload& workload, const PlanOptions& options);
  PlanSeries(const PlanSeries&) = delete;
  PlanSeries& operator=(const PlanSeries&) = delete;

  /// Valid until the next call. `cost` prices. Throws as make_plan does.
  const doc::Plan& plan(const cost::CostModel& cost, int ranks);
  /// The Plan made last.
  doc::Plan last() && { return std::move(plan_); }

 private:
  struct Variant {
    std::int32_t kind = 0;  // of kinds_
    bool first_step = false, weighted = false;
  };
  struct Request;

  std::int32_t add_variants(std::string_view base, bool first_step);
  void set_names();
  void compute_as(const doc::Workload& workload);
  void compute_slowed(double share);
  double communication_s(const cost::CostModel& cost) const;
  void make_cycle(const cost::CostModel& cost);
  void set_schedule(std::int32_t first_steps, std::int32_t steady);
  void make_steps(const Request&, const Exchange& exchange);
  void make(const Request&, const Exchange& exchange, const Variant&, doc::TaskGraph& graph);
  void keep_what_ends_first(const Request&);
  double mean_of_cycle() const;

  const Planner& planner_;
  const doc::Workload& alone_;           // as one rank computes
  std::optional<doc::Workload> slowed_;  // as each of several ranks does, if that differs
  double slowed_share_ = 1;              // of what several ranks add, in `slowed_`
  const doc::Workload* workload_;        // the one that computation_ is of
  PlanOptions options_;
  StepKinds kinds_;
  std::vector<Variant> variants_;  // as the Plan's
  doc::Plan plan_;
  StepDraft computation_;  // a step with computation alone, and its operations
  std::vector<doc::Component> operations_;
  StepDraft step_;
  std::vector<StepBorder> borders_;  // by variant, if steps reach into the next one
  std::vector<double> end_s_;        // by variant, if exchanges are compared
  doc::Plan other_;                  // with the exchange that is compared
};

// Private: buckets of steps that train several models in turn.

/// The buckets of each turn of a step (Gradient::turn), cut as those of a Workload of its own. No
/// bucket holds gradients of two turns, and limits begin anew.
void fuse_turns(const Exchange& exchange, const FusionInput& input, const Fusion& out);

}  // namespace linerate::plan
