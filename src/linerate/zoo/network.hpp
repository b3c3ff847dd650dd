// A LibTorch module built from a model's table: one generic interpreter in place of eleven
// hand-written modules.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "linerate/models/description.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

namespace linerate::torch_adapter {
struct LayerSpec;
}

namespace linerate::zoo {

inline constexpr double kNormMomentum = 0.1;  // LibTorch's

/// Parameters and buffers have the table's names, shapes and order. Images [B, C, H, W] f32 or
/// token ids [B, T] i64 in, logits [B, classes] or [B, T, classes] out.
class Network : public torch::nn::Module {
 public:
  /// Initialises from LibTorch's default generator: seed it first.
  explicit Network(models::Description description);

  at::Tensor forward(const at::Tensor& input);
  /// Weight of a training batch in batch norm's running averages; kNormMomentum at first.
  void set_norm_momentum(double momentum) { norm_momentum_ = momentum; }

  torch::nn::Module& module() { return *this; }
  const torch_adapter::NamedTensors& parameters() const { return named_; }
  const torch_adapter::NamedTensors& buffers() const { return named_buffers_; }
  const models::Description& description() const { return description_; }
  /// What K-FAC may precondition, in forward order: its modules are no torch::nn types.
  std::vector<torch_adapter::LayerSpec> layers() const;
  /// Does forward draw random numbers in training?
  bool draws() const;

 private:
  /// Handles of a node's tensors, so that forward looks nothing up by name.
  struct Tensors {
    at::Tensor weight, bias, mean, variance, count;
  };

  torch::nn::Module& scope(const std::string& path);
  void register_tensors(std::size_t node);
  void initialise(const models::Node& node, const Tensors& tensors) const;
  at::Tensor run(std::size_t node, const std::vector<at::Tensor>& values);
  at::Tensor attend(const models::Node& node, const std::vector<at::Tensor>& inputs) const;

  models::Description description_;
  torch_adapter::NamedTensors named_, named_buffers_;
  std::vector<Tensors> tensors_;
  std::vector<std::vector<int>> dead_after_;  // values whose last reader a node is
  std::vector<bool> in_place_;                // the node may overwrite its first input
  double norm_momentum_ = kNormMomentum;
  std::map<std::string, std::shared_ptr<torch::nn::Module>> scopes_;
};

}  // namespace linerate::zoo
