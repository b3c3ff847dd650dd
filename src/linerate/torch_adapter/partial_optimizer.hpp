// An optimizer's step taken apart: parameters are updated at different times, with the same result.
// Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <vector>

#include "linerate/torch_adapter/partial_updates.hpp"

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
}  // namespace torch::optim

namespace linerate::torch_adapter {

/// The facts about one of LibTorch's optimizers that a DataParallel needs, as its groups are now.
SteppedOptimizer described(const torch::optim::Optimizer& optimizer);

/// LibTorch's optimizers update every parameter that has a gradient, all in one step(). Under DeAR
/// the parameters of a part are updated when their gradients have arrived.
///
/// So each part of the parameters has a twin of the optimizer, of the same class and over these
/// parameters alone. The twin takes options and state as they are at capture(). Later changes by
/// the program (learning rate schedules) are for the next step. The optimizer itself may be gone
/// when the last part is updated. release() hands the state back.
///
/// For example a program steps at a rate of 0.1, sets the rate to 0.01, and then reads the last
/// layer. The layer's update runs only now, but with 0.1, because the twin took its options at the
/// step.
class PartialOptimizer final : public PartialUpdates {
 public:
  PartialOptimizer();
  ~PartialOptimizer() override;

  /// Whether it is one of LibTorch's own optimizers that treat each parameter by itself: SGD, Adam,
  /// AdamW, Adagrad, RMSprop. A class derived from them is not, since it may do more.
  static bool can_take_apart(const torch::optim::Optimizer& optimizer);

  /// The optimizer whose step the next capture() takes apart. It need not live longer than that
  /// call.
  void follow(torch::optim::Optimizer& optimizer) { next_ = &optimizer; }
  void capture(const std::vector<std::vector<at::Tensor>>& parts) override;
  void update(const std::vector<std::size_t>& which,
              const std::vector<std::vector<at::Tensor>>& gradients) override;
  /// Gives the state back to the optimizer if that still lives and holds what was captured.
  void release() override;

 private:
  struct Kind;
  struct Part;
  template <typename Optimizer, typename Options, typename State>
  static Kind kind();
  static const std::vector<Kind>& kinds();
  static const Kind* kind_of(const torch::optim::Optimizer& optimizer);
  static void step_what_has_gradients(torch::optim::Optimizer& optimizer);

  static void update(Part& part, const std::vector<at::Tensor>& gradients);
  bool fits(const std::vector<std::vector<at::Tensor>>& parts) const;
  void make_twins(const Kind& kind, const std::vector<std::vector<at::Tensor>>& parts);
  void watch(const Kind& kind);

  torch::optim::Optimizer* next_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::vector<std::vector<void*>> groups_;  // the optimizer's parameters when twins were made
  std::vector<Part> parts_;
  void* watched_ = nullptr;  // the parameter whose state tells that the optimizer lives
  std::shared_ptr<std::atomic<bool>> alive_;
};

}  // namespace linerate::torch_adapter
