// An optimizer's step taken apart: parameters are updated at different times, with the same result.
// Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
}  // namespace torch::optim

namespace linerate::torch_adapter {

/// LibTorch's optimizers update every parameter that has a gradient. Here each part of the
/// parameters has a twin of the optimizer, of the same class and over these parameters alone. It
/// takes options and state as they are at capture(): later changes by the program (learning rate
/// schedules) are for the next step, and the optimizer itself may be gone when the last part is
/// updated. release() hands the state back.
class PartialOptimizer {
 public:
  PartialOptimizer();
  ~PartialOptimizer();

  /// Whether it is one of LibTorch's own that treat each parameter by itself: SGD, Adam, AdamW,
  /// Adagrad, RMSprop, and no class derived from them.
  static bool can_take_apart(const torch::optim::Optimizer& optimizer);

  /// The update that optimizer.step() would do now; parts[i] are parameters (those that the
  /// optimizer does not hold are left alone).
  void capture(torch::optim::Optimizer& optimizer,
               const std::vector<std::vector<at::Tensor>>& parts);
  /// Updates the parameters of one part; gradients[k] is parts[part][k]'s, undefined if it has
  /// none. Their .grad is unchanged afterwards.
  void update(std::size_t part, const std::vector<at::Tensor>& gradients);
  /// Gives the state back to the optimizer if that still lives and holds what was captured.
  void release();

 private:
  struct Kind;
  struct Part;
  template <typename Optimizer, typename Options, typename State>
  static Kind kind();
  static const std::vector<Kind>& kinds();
  static const Kind* kind_of(const torch::optim::Optimizer& optimizer);

  bool fits(const std::vector<std::vector<at::Tensor>>& parts) const;
  void make_twins(const Kind& kind, const std::vector<std::vector<at::Tensor>>& parts);
  void watch(const Kind& kind);

  torch::optim::Optimizer* optimizer_ = nullptr;
  std::vector<std::vector<void*>> groups_;  // the optimizer's parameters when twins were made
  std::vector<Part> parts_;
  void* watched_ = nullptr;  // the parameter whose state shows that the optimizer lives
  std::shared_ptr<std::atomic<bool>> alive_;
};

}  // namespace linerate::torch_adapter
