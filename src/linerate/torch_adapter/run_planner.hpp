// Chooses the Plan of a training run and changes it at agreed steps, from what the steps measured.
// Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/block.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/plan/planner.hpp"

namespace linerate::torch_adapter {

/// Seconds in one step of this rank; negative: not measured in it.
struct CurvatureTimes {
  std::vector<double> forward_s;            // by block: its layer's pass, without the factor
  std::vector<double> factor_s, inverse_s;  // by factor (doc::factor_index)
};

// Whether a strategy's steps are longer than ddp's on these ranks. It is measured, because no cost
// model of the network has what messages cost the processors that compute.

/// What a trial found: seconds of a step, means over the ranks, the same on every rank.
struct TrialResult {
  double ddp_s = 0, strategy_s = 0;
};

/// Blocks of steps by ddp and by the strategy in turn, kRounds of each. So a drift of the machine's
/// speed meets both.
struct Trial {
  static constexpr int kRounds = 2;
  int blocks = 0;                                   // that have ended
  std::vector<double> ddp_s = {}, strategy_s = {};  // medians of blocks, on this rank

  /// Whether the next step is ddp's.
  bool of_ddp() const { return blocks % 2 == 0; }
};

/// What K-FAC knows of the model.
struct SecondOrder {
  std::vector<std::string> layers;           // names, in the order in which forward comes to them
  std::vector<doc::Block> blocks;            // of these layers
  std::optional<doc::SecondOrderCost> cost;  // on this machine, the same on every rank
  /// Plans are made again from what steps measure, unless owners must stay: a factor of one rank's
  /// own samples is another factor on another rank.
  bool measured = true;
};

/// One step of this rank.
struct StepTimes {
  /// By parameter: when its gradient was there, since the first one, without the factors computed
  /// in between; negative: there was none.
  std::vector<double> ready_s;
  double step_s = -1;  // from the end of the step before; negative: not known
  /// From there to the first gradient, without waiting for updates; negative: not known.
  double before_s = -1;
  plan::CurvatureUpdate update = {false, false};  // of K-FAC; on every rank alike
  std::optional<CurvatureTimes> curvature = {};   // if factors are updated
};

/// Of steps that a device works off by itself. When such a step ends, the host has none of its
/// times yet, and messages of the host say nothing of the device's.
struct EnqueuedSteps {
  /// A window of steps has ended: fills in what StepTimes hold besides `update`. May wait for them.
  std::function<void(std::span<StepTimes> window)> read_times;
  /// What times the device's own collectives, up to so many bytes. Collective.
  std::function<std::unique_ptr<calibrate::CallTimer>(std::int64_t largest_bytes)> make_timer;
};

/// Plans are those of plan::make_plan with housekeeping, over a Workload of the parameters:
///
/// - Before the first step: reverse registration order.
/// - After the first step, for strategies whose plan depends on the order: rank 0's ready order,
///   with mean ready times over ranks.
/// - After `measured_steps` more, for strategies that plan by times or by cost: the same with the
///   window's median times.
/// - With measured K-FAC and with "auto": again after each window whose step is off the prediction
///   by more than `replan_above`. Rank 0 plans, from times on which all have agreed, and gives all
///   ranks its plan. A window of K-FAC is `measured_steps` updates of factors. If that changes
///   little and the prediction stays wrong, further departures count from what was measured then.
///
/// "auto" in the place of the exchange is "ddp" until the first window is full. From then on a plan
/// is that of the exchange whose step is predicted shortest, of all that are registered and can
/// train. The one in force stays unless another gains kLeastGain. Collectives, and what they cost
/// the processors that compute, are probed for the first window, unless a Cluster was given, and
/// again after each departure. Of a device the collectives alone are probed.
///
/// With a finite `most_above_ddp`, an exchange that plans by cost is tried before its plan is
/// final. With "auto" any exchange that it chooses is tried. In a Trial ddp, with the strategy's
/// wire format and extras, and the strategy run in turn, `measured_steps` and one more a block.
/// Both are planned by the times of ddp's first block. If the strategy's steps are longer by more
/// than that share, ddp stays, and "auto" does not choose the strategy again.
///
/// The ranks decide together. Each plan has variants for the first step, which sends after
/// backward, and for the others. Messages by which ranks agree on a plan belong to no step.
class RunPlanner {
 public:
  /// Share of the predicted step for which "auto" takes another exchange.
  static constexpr double kLeastGain = 0.02;

  struct Options {
    doc::Strategy strategy;
    std::optional<doc::Cluster> cluster = {};
    int measured_steps = 5;
    std::int64_t buffer_bytes = 0;  // broadcast after each step; 0: none
    std::optional<SecondOrder> second_order = {};
    double replan_above = 0.2;  // share of the predicted step
    /// Share of ddp's step; infinity: the strategy runs, whatever it costs. Not with K-FAC, whose
    /// steps are of several kinds.
    double most_above_ddp = std::numeric_limits<double>::infinity();
    std::optional<EnqueuedSteps> enqueued = {};
  };

  /// `parameters` in registration order; the layer is one of SecondOrder::layers, -1: none. Throws
  /// UsageError for a strategy that does not exist or cannot train, saying why. Does not
  /// communicate.
  RunPlanner(comm::Communicator& communicator, std::vector<doc::Gradient> parameters,
             Options options);

  std::shared_ptr<const doc::Plan> plan() const { return plan_; }
  /// The parameter (registration index) at each position of the plan.
  const std::vector<std::int32_t>& order() const { return order_; }
  /// What was measured last; its order is the plan's if the plan depends on it.
  const doc::Workload& workload() const { return workload_; }
  bool settled() const { return settled_; }
  /// The strategy of the plan in force: with "auto" the one chosen.
  const doc::Strategy& strategy() const { return options_.strategy; }
  /// What a trial that is over has measured.
  const std::optional<TrialResult>& trial() const { return trial_result_; }
  /// Whether after it ddp runs in the place of what was asked for.
  bool gave_up() const { return gave_up_; }
  /// A trial that is over, in words: what was tried, its steps and ddp's, and which runs. Empty if
  /// there is none.
  std::string trial_in_words() const;
  /// Plans made from measured steps, so far.
  int measured_plans() const { return measured_plans_; }
  /// Of the plan in force, made from a window of measured steps, or as a trial has measured it;
  /// absent before.
  std::optional<double> predicted_step_s() const { return predicted_s_; }
  /// Steps seen: the number of the next one.
  std::int64_t steps() const { return steps_; }
  /// Whether a plan will be made by the next step's times, and not by its order alone.
  bool needs_times() const {
    return !settled_ && (trial_ || watches() || plans_by(plan::PlansBy::times));
  }

  /// True when the plan changed. Collective after some steps, the same ones on every rank.
  bool after_step(StepTimes times);

 private:
  bool plans_by(plan::PlansBy least) const { return traits_.plans_by >= least; }
  /// Steps with K-FAC, and with "auto", are watched all the time.
  bool watches() const { return !candidates_.empty() || measures_curvature(); }
  bool measures_curvature() const {
    return options_.second_order && options_.second_order->measured;
  }
  bool tries() const;
  /// Tries the strategy in force, beginning with ddp.
  void begin_trial();
  bool end_block();
  void add_candidates();
  void probe();
  void read_window();
  bool is_window_full() const;
  bool end_window();
  double mean_over_ranks(double value, const char* what);
  double agreed_step_s();
  void agree_on_curvature();
  double predict(const doc::Plan& plan) const;
  std::shared_ptr<const doc::Plan> plan_of(const doc::Strategy& strategy) const;
  void plan_on_rank_0();
  doc::Cluster cluster() const;
  void set_order();
  void agree_on_order(std::vector<double> ready_s);
  doc::Gradient gradient_of(std::int32_t parameter, double ready_s) const;
  void make_plan();

  comm::Communicator& communicator_;
  std::vector<doc::Gradient> parameters_;
  Options options_;
  plan::Traits traits_;
  std::vector<std::int32_t> order_;
  doc::Workload workload_;
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<doc::Strategy> candidates_;  // of "auto", else empty
  std::optional<doc::Strategy> tried_;
  std::optional<Trial> trial_;  // of it, until it is over
  std::optional<TrialResult> trial_result_;
  bool gave_up_ = false;
  int measured_plans_ = 0;
  std::vector<StepTimes> window_;
  std::optional<double> predicted_s_;
  double expected_s_ = 0;  // predicted, or measured if planning again did not mend the prediction
  std::int64_t steps_ = 0;
  bool settled_ = false;
};

}  // namespace linerate::torch_adapter
