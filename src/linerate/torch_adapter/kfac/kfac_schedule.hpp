// K-FAC's options, as they are for the current step. Private to torch_adapter.
#pragma once

#include <cstdint>
#include <functional>

#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/kfac/collector.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"

namespace linerate::torch_adapter {

class KfacSchedule {
 public:
  /// Throws UsageError for options that contradict each other.
  explicit KfacSchedule(KfacOptions options);

  const KfacOptions& options() const { return options_; }
  /// said() is the options as the caller filled them in. adopt() takes the rest from a strategy;
  /// throws UsageError.
  const KfacOptions& said() const { return said_; }
  void adopt(const plan::Kfac& kfac);
  /// Goes back to the caller's options.
  void forget_strategy();
  /// KfacOptions::optimizer from now on.
  void set_optimizer(torch::optim::Optimizer& optimizer) { optimizer_ = &optimizer; }

  std::int64_t step() const { return step_; }
  bool factors_due() const;
  bool inverses_due() const;
  /// Whether a step updates factors and inverses, in place of the options' intervals.
  struct Due {
    bool factors = true, inverses = true;
  };
  double damping() const { return options_.damping->at(step_); }
  /// The number of backward passes of a step by which each loss is divided; 1 unless it is given.
  double accumulated() const { return options_.accumulate ? options_.accumulate->at(step_) : 1; }

 protected:
  /// The optimizer's in this step.
  double rate() const;
  /// Scales the momentum of these blocks back if the rate has risen.
  void bound_update(const Blocks& blocks);
  /// Warns, once, if the step had another number of backward passes than `accumulate`. Its factors
  /// would then not be those of the joined batch.
  void warn_of_passes(int passes);

  std::int64_t step_ = 0;
  double last_rate_ = 0;  // of the last step that counted
  std::function<Due(std::int64_t)> schedule_;

 private:
  const KfacOptions said_;  // what the caller filled in
  KfacOptions options_;     // with values for the rest
  torch::optim::Optimizer* optimizer_ = nullptr;
  bool warned_unbound_ = false, warned_passes_ = false;
};

// From a strategy's kfac(...) to the preconditioner's options. Private to linerate.

/// What the text says. The rest, such as the loss's average and the rate, is the caller's.
[[nodiscard]] KfacOptions planned_options(const plan::Kfac& kfac);

}  // namespace linerate::torch_adapter
