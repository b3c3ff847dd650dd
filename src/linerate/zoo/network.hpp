// A LibTorch module built from a model's table: one generic interpreter in place of eleven
// hand-written modules.
#pragma once

#include <memory>
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
class Network {
 public:
  /// Initialises from LibTorch's default generator: seed it first.
  explicit Network(models::Description description);
  ~Network();

  at::Tensor forward(const at::Tensor& input);
  void train(bool on);
  /// Weight of a training batch in batch norm's running averages; kNormMomentum at first.
  void set_norm_momentum(double momentum);

  torch::nn::Module& module();
  const torch_adapter::NamedTensors& parameters() const;
  const torch_adapter::NamedTensors& buffers() const;
  const models::Description& description() const;
  /// What K-FAC may precondition, in forward order: its modules are no torch::nn types.
  std::vector<torch_adapter::LayerSpec> layers() const;
  /// Does forward draw random numbers in training?
  bool draws() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace linerate::zoo
