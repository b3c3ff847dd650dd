// Plans of one Workload by one strategy, for one network after another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "linerate/plan/passes.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/plan/step_border.hpp"

namespace linerate::plan {

/// Makes once what its Plans have in common: names, kinds of steps, the computation. Memory is used
/// again: sweeps make thousands of Plans.
class PlanSeries {
 public:
  /// Borrows Planner and Workload. `options.cost` is not looked at. Throws InputError for a
  /// Workload without gradients.
  PlanSeries(const Planner& planner, const doc::Workload& workload, const PlanOptions& options);

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
  void set_schedule(std::int32_t first_steps, std::int32_t steady);
  void make_steps(const Request&, const Exchange& exchange);
  void make(const Request&, const Exchange& exchange, const Variant&, doc::TaskGraph& graph);
  void keep_what_ends_first(const Request&);
  double mean_of_cycle() const;

  const Planner& planner_;
  const doc::Workload& workload_;
  std::unique_ptr<const PreparedWorkload> prepared_;  // by the exchange
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

}  // namespace linerate::plan
