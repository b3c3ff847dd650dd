// The memory of a step's payloads: each bucket one array, each gradient a view of it. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "linerate/exec/operation.hpp"
#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {

/// Shapes: gradients g[n_i], i = position in the plan -> bucket[sum n_i, flags where they ride,
/// zeros up to `padded`] -> encoded payload where the plan casts. Flags [gradients +
/// doc::kStepFlags], buffers u8[bytes], samples f64[1].
class PayloadMemory : public exec::Payloads {
 public:
  /// Makes the payloads of a variant; parameter_at[i] is the parameter at position i of the plan,
  /// of whose shape the gradient's slot is.
  /// Buckets that are as before stay where they are. Gradients that are views of an earlier layout
  /// keep that layout's memory alive.
  void lay_out(const doc::TaskGraph& graph, const std::vector<const Parameter*>& parameter_at);
  /// Another plan's positions mean other parameters.
  void forget() { graph_ = nullptr, members_.clear(), buckets_.clear(); }

  /// Whether a gradient can go into its slot: dense, on the CPU, of the slot's shape.
  bool fits(std::int32_t position, const at::Tensor& gradient) const;
  /// slot = scale * gradient, in one pass. The gradient fits and is not the slot itself.
  void fill(std::int32_t position, const at::Tensor& gradient, double scale);
  void fill_zeros(std::int32_t position) { slots_[static_cast<std::size_t>(position)].zero_(); }
  /// Takes the place of a gradient that is the slot itself: a copy of its own, before the slot is
  /// scaled and sent.
  at::Tensor move_out(std::int32_t position, double scale);
  /// The slot in the shape and strides of its parameter.
  const at::Tensor& view(std::int32_t position) const {
    return slots_[static_cast<std::size_t>(position)];
  }
  bool is_view(std::int32_t position, const at::Tensor& gradient) const;

  /// A bucket's values in its encoded payload's type, and back.
  void encode(std::int32_t bucket);
  void decode(std::int32_t bucket);

  /// The one payload of this content, [padded].
  at::Tensor& only(doc::Content content);
  /// The flags, in whatever payload and type they travel: [gradients + doc::kStepFlags].
  void write_flags(const std::vector<float>& flags);
  void read_flags(std::vector<float>& flags);

  comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override;
  std::shared_ptr<const void> hold(const doc::TaskGraph& graph, std::int32_t payload) override;

 private:
  bool has_buckets_of(const doc::TaskGraph& graph) const;
  void make_buckets(const doc::TaskGraph& graph, const std::vector<const Parameter*>& parameter_at);
  std::size_t encoded_of(std::int32_t bucket) const;
  /// Calls `visit(first)` with a pointer to the first flag in its own type. (A tensor of them would
  /// cost more than the flags themselves, in every step.)
  template <typename Visit>
  void visit_flags(std::size_t count, Visit&& visit);

  const doc::TaskGraph* graph_ = nullptr;
  std::vector<doc::Payload> buckets_;  // what the first tensors of values_ were made for
  std::vector<std::int32_t> members_;
  std::vector<at::Tensor> values_;  // by payload
  std::vector<at::Tensor> slots_;   // by position
};

}  // namespace linerate::torch_adapter
