// Tells when autograd has accumulated a gradient. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/options.hpp"

namespace linerate::torch_adapter {

/// Calls `ready(i)` on the thread of the backward pass each time a gradient has been added to
/// parameter i's .grad, until this object is destroyed.
///
/// The hooks sit in the tensors' own autograd data. Unlike hooks of AccumulateGrad nodes they stay
/// through torch::load, .to(dtype), set_data, freezing and thawing. A tensor has room for one hook.
/// A hook that is there already, of another DataParallel or other code, is kept and called first.
/// An exception of `ready` leaves through backward().
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, std::function<void(std::size_t)> ready);
  ~GradientHooks();

  /// Puts back hooks that other code has pushed out. Python's register_post_accumulate_grad_hook()
  /// writes its own hook into the slot; that one is kept and called first. Returns whether any was
  /// missing, because then gradients may have come unnoticed.
  bool renew();

 private:
  struct Listener;
  struct Hook;

  std::vector<at::Tensor> parameters_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // by parameter
};

// Which gradients autograd has left in a step, and how many of them make a parameter complete.
// Private to torch_adapter.

/// The passes of one parameter since the last step ended.
struct ParameterStep {
  int gradients = 0;                     // accumulations in the synchronising part
  bool used = false;                     // any accumulation
  bool reported = false;                 // its backward task is done
  std::int64_t ready = -1;               // the moment of the last (MeasuredStep)
  std::optional<std::uint64_t> weights;  // a sample of the parameter's, at its first gradient
};

/// Learns how many gradients each parameter gets in a step. Shared modules and several backward
/// passes give it more than one, and its bucket must not leave before the last.
///
/// The first step teaches the number. A step with more teaches it at once, because sending too
/// early costs a second exchange. A step with fewer counts only after kPatience such steps in a
/// row, because waiting too long only costs overlap. For example a parameter gets 2, 2, 1, 3, 1, 1,
/// 1 gradients. After the first step 2 are expected, after the fourth 3, and after the seventh 1.
class GradientCount {
 public:
  explicit GradientCount(std::size_t parameters)
      : step_(parameters), expected_(parameters, 1), fewer_(parameters) {}

  std::size_t size() const { return step_.size(); }
  ParameterStep& operator[](std::size_t p) { return step_[p]; }
  const ParameterStep& operator[](std::size_t p) const { return step_[p]; }
  bool any() const {
    return std::ranges::any_of(step_, [](const ParameterStep& s) { return s.used; });
  }
  /// Gradients came that are to be exchanged; those that only accumulated do not count.
  bool any_to_exchange() const {
    return std::ranges::any_of(step_, [](const ParameterStep& s) { return s.gradients > 0; });
  }
  /// Whether the last gradient of this step is there, judged by earlier steps.
  bool is_complete(std::size_t p) const { return !learning_ && step_[p].gradients == expected_[p]; }

  /// Forgets what was reported: the step's gradients are reported once more, in another round.
  void report_again() {
    for (ParameterStep& s : step_) s.reported = false;
  }
  /// By parameter: when its gradient was there, -1 if there was none. Ends the step.
  std::vector<std::int64_t> end_step() {
    std::vector<std::int64_t> ready;
    for (std::size_t p = 0; p < step_.size(); ++p) {
      ready.push_back(step_[p].ready);
      learn(p);
    }
    learning_ = false;
    discard();
    return ready;
  }
  /// Ends a step from which there is nothing to learn.
  void discard() { std::ranges::fill(step_, ParameterStep{}); }

 private:
  static constexpr int kPatience = 3;
  struct Fewer {
    int steps = 0;  // in a row
    int most = 0;   // gradients in any of them
  };

  void learn(std::size_t p) {
    const int found = step_[p].gradients;
    Fewer& fewer = fewer_[p];
    if (learning_ || found >= expected_[p]) {
      expected_[p] = std::max(1, found);
      fewer = {};
    } else if (found > 0) {
      fewer = {fewer.steps + 1, std::max(fewer.most, found)};
      if (fewer.steps < kPatience) return;
      expected_[p] = fewer.most;
      fewer = {};
    }
  }

  std::vector<ParameterStep> step_;
  std::vector<int> expected_;
  std::vector<Fewer> fewer_;
  bool learning_ = true;
};

// Tells gradients of this step from those that stood there before. Private to torch_adapter.

/// Notes which tensor stands in each parameter's .grad when a step ends. If another tensor stands
/// there later, a backward pass or the program has put it there since. A tensor that was changed in
/// place (cleared to zeros, clipped) is still the same.
class LeftGradients {
 public:
  void note(const std::vector<Parameter>& parameters) {
    left_.clear();
    for (const Parameter& p : parameters) left_.emplace_back(p.tensor.grad().getIntrusivePtr());
  }
  /// `gradient`: the tensor that stands there now. False if none was noted for this parameter.
  bool is_left(std::size_t parameter, const at::Tensor& gradient) const {
    return parameter < left_.size() &&
           left_[parameter]._unsafe_get_target() == gradient.unsafeGetTensorImpl();
  }

 private:
  // Weak pointers keep no gradient's memory, and their addresses are not given to later tensors.
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> left_;
};

// Several DataParallel objects on one communicator: one of them at a time sends while a backward
// pass runs. Private to torch_adapter.

/// The turn to send while a backward pass runs. Collectives of one communicator have to be
/// submitted in the same order on all ranks. A backward pass may run through the models of several
/// objects: a GAN's generator learns through the discriminator. Casts may end at any time. So if
/// two objects sent as gradients come, rank 0 might submit the generator's bucket first and rank 1
/// the discriminator's.
///
/// The first object whose gradient comes takes the turn until its step ends. The second sends in
/// finish(), when the first has nothing in flight that would submit more.
class EarlySending {
 public:
  /// `wait_idle` returns when its owner will submit nothing more by itself.
  EarlySending(comm::Communicator& communicator, std::function<void()> wait_idle);
  ~EarlySending();
  EarlySending(const EarlySending&) = delete;
  EarlySending& operator=(const EarlySending&) = delete;

  /// True if it is this object's turn now.
  bool take();
  void give_back();
  /// Sleeps until the object that has the turn will submit nothing more by itself.
  void wait_for_others() const;

 private:
  comm::Communicator& communicator_;
  std::function<void()> wait_idle_;
};

}  // namespace linerate::torch_adapter

// Notices that a model has other tensors, or that its tensors have moved or changed. Private to
// torch_adapter.

namespace torch::nn {
class Module;
}

namespace linerate::torch_adapter {

/// The tensors that a model is made of.
struct ModelMembers {
  NamedTensors parameters, buffers;

  static ModelMembers of(torch::nn::Module& model);
  bool operator==(const ModelMembers& other) const;  // the same tensors under the same names
  bool holds(const at::Tensor& parameter) const;
};

/// A model whose members may change: layers are replaced, added and removed.
class ChangingModel {
 public:
  /// `model` outlives this object, unless a shared_ptr holds it now. Then it may be destroyed
  /// earlier, which get() notices.
  explicit ChangingModel(torch::nn::Module* model);
  /// The model; null if there was none or it is destroyed.
  torch::nn::Module* get() const;

 private:
  torch::nn::Module* model_;
  std::weak_ptr<torch::nn::Module> shared_;
  bool is_shared_;
};

/// Remembers where tensors lie and how they are laid out; addresses are compared, never followed.
class ModelWatch {
 public:
  ModelWatch(const NamedTensors& parameters, const NamedTensors& buffers);

  /// Whether any tensor is different: loaded (torch::load gives new memory), moved, retyped,
  /// thawed. Values written in place, as by optimizers, are no difference. A parameter that was
  /// frozen since is none either, because it counts as unused.
  bool changed() const;
  /// Whether a difference needs another plan, and not only other memory.
  bool reshaped() const;
  /// Accepts what is there now.
  void accept();

 private:
  struct Seen {
    at::Tensor tensor;
    const void* data = nullptr;
    at::ScalarType type{};
    at::Device device{at::kCPU};
    std::vector<std::int64_t> sizes, strides;
    bool requires_grad = false;
    void take();
    bool moved() const { return data != tensor.const_data_ptr(); }
    bool reshaped() const;
  };
  std::vector<Seen> seen_;
};

}  // namespace linerate::torch_adapter
