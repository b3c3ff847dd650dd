// Chooses the plan of a training run and changes it at agreed steps, from what the steps measured.
// Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::torch_adapter {

struct PlannedParameter {
  std::string name;
  std::int64_t elements = 0;
  DType dtype = DType::f32;
};

/// Plans are those of plan::make_plan over a Workload of the parameters:
///   before the first step   reverse registration order;
///   after the first step    rank 0's ready order, mean ready times over ranks ("bulk" keeps the
///   first plan); after `measured_steps`  more, for strategies that plan by cost: the same with the
///   window's median times.
class ExchangePlanner {
 public:
  struct Options {
    std::string strategy = "ddp";
    std::optional<doc::Cluster> cluster = {};
    int measured_steps = 5;
  };

  /// `parameters` in registration order. Throws UsageError for a strategy that does not exist.
  ExchangePlanner(comm::Communicator& communicator, std::vector<PlannedParameter> parameters,
                  Options options);

  std::shared_ptr<const doc::Plan> plan() const { return plan_; }
  /// The parameter (registration index) at each position of the plan.
  const std::vector<std::int32_t>& order() const { return order_; }
  const doc::Workload& workload() const { return workload_; }
  bool settled() const { return settled_; }

  /// ready_s[p]: when parameter p's gradient was there, since the first one; negative: there was
  /// none. True when the plan changed. Collective after some steps, the same ones on every rank.
  bool after_step(std::span<const double> ready_s);

 private:
  bool plans_by_cost() const;
  void agree_on_order(std::vector<double> ready_s);
  void make_plan();

  comm::Communicator& communicator_;
  std::vector<PlannedParameter> parameters_;
  Options options_;
  doc::Strategy strategy_;
  std::vector<std::int32_t> order_;
  doc::Workload workload_;
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<std::vector<double>> window_;
  int steps_ = 0;
  bool settled_ = false;
};

}  // namespace linerate::torch_adapter
