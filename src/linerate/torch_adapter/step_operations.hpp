// What the tasks of a training step do to tensors: scale, cast, pack, unpack. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "linerate/exec/operation.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/torch_adapter/gradient_count.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"

namespace linerate::torch_adapter {

/// One training step's tensors, as its operations see them.
class StepTensors {
 public:
  /// `parameters` in registration order; `buffers` are those that rank 0 gives to everybody. All
  /// arguments outlive this object.
  StepTensors(std::vector<at::Tensor> parameters, std::vector<at::Tensor> buffers,
              GradientCount& count, PayloadMemory& memory);

  /// The parameter (registration index) at each position of the plan.
  void set_order(const std::vector<std::int32_t>& order);
  const std::vector<std::int32_t>& order() const { return order_; }
  std::int32_t position_of(std::size_t parameter) const { return position_of_[parameter]; }
  std::vector<at::Tensor> parameters_in_order() const;
  std::int64_t buffer_bytes() const;

  /// Begins a step: gradients count 1 / ranks.
  void begin_step(int ranks);
  /// Gradients count as this rank's share of all samples, once those are added up.
  void set_samples(std::int64_t samples);

  /// The operations of a training plan by name.
  void register_with(exec::Runner& runner);

  double copy_s() const { return copy_s_; }
  int unused_here() const { return unused_here_; }
  int unused_everywhere() const { return unused_everywhere_; }

 private:
  struct Named;
  double scale();
  void collect(std::int32_t position);
  void pack(const doc::Payload& payload);
  void unpack(const doc::Payload& payload);
  void settle_unused();

  std::vector<at::Tensor> parameters_, buffers_;
  GradientCount& count_;
  PayloadMemory& memory_;
  std::vector<std::int32_t> order_, position_of_;
  std::vector<at::Tensor> before_;  // .grad of a parameter without a gradient here
  std::vector<std::unique_ptr<exec::Operation>> operations_;
  double equal_share_ = 1, samples_ = 0;
  bool weighted_ = false;
  double copy_s_ = 0;
  int unused_here_ = 0, unused_everywhere_ = 0;
};

}  // namespace linerate::torch_adapter
