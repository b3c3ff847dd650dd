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
#include "linerate/plan/codec.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {

struct PlanOptions {
  /// What optimal and mg-wfbp price exchanges with; absent: CostModel(cluster).
  std::optional<cost::CostModel> cost;
  /// Plan the variant of the first step too, where the strategy has one.
  bool first_step = true;
};

/// Variants: "steady", and before it "first-step" where the exchange must start without having
/// seen a backward pass (ddp: reverse registration order), which step 0 runs. Throws UsageError for
/// unknown strategies and options, InputError for a Workload without gradients.
doc::Plan make_plan(const doc::Workload& workload, const doc::Cluster& cluster,
                    const doc::Strategy& strategy, int ranks, const PlanOptions& options = {});

/// A Strategy read once, for planning many configurations.
class Planner {
 public:
  /// The Cluster's codecs may stand behind codec(name=...).
  Planner(const doc::Strategy& strategy, const doc::Cluster& cluster);

  /// A codec of this ratio without cost joins the strategy, or gives its codec the ratio it lacks.
  /// Throws UsageError when the strategy's codec has a ratio of its own.
  void set_compression_ratio(double ratio);

  /// The steady variant into `graph`, whose memory is used again.
  void plan_steady(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                   doc::TaskGraph& graph) const;
  doc::Plan plan(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                 bool first_step) const;

  /// Canonical text of the strategy.
  const std::string& text() const { return text_; }
  double compression_ratio() const { return payload_.ratio; }
  /// Where the plan is known not to be exact or the Workload left something open, for people.
  std::vector<std::string> caveats(const doc::Workload& workload,
                                   const cost::CostModel& cost) const;

 private:
  void build(const doc::Workload&, int ranks, doc::TaskGraph&,
             std::span<const double> not_before) const;

  std::string text_;
  std::string name_;
  std::unique_ptr<const Exchange> exchange_;
  std::optional<Codec> codec_;
  bool own_ratio_ = false;
  Payload payload_;
};

}  // namespace linerate::plan
