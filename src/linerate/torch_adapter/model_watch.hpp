// Notices that a model has other tensors, or that its tensors have moved or changed. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "linerate/torch_adapter/options.hpp"

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
