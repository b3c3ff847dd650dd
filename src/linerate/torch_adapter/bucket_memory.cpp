#include "linerate/torch_adapter/bucket_memory.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include "linerate/core/error.hpp"
#include "linerate/core/large_pages.hpp"

namespace linerate::torch_adapter {
namespace {

at::ScalarType scalar_type(DType type) {
  switch (type) {
    case DType::f64:
      return at::kDouble;
    case DType::f16:
      return at::kHalf;
    case DType::bf16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

/// Written once: the first touch of fresh pages happens here, not inside a backward pass.
at::Tensor zeros(std::int64_t elements, DType dtype) {
  at::Tensor flat = at::empty({elements}, scalar_type(dtype));
  prefer_large_pages(flat.data_ptr(), flat.nbytes());
  return flat.zero_();
}

}  // namespace

void BucketMemory::lay_out(const doc::TaskGraph& graph,
                           const std::vector<at::Tensor>& parameter_at) {
  graph_ = &graph;
  buckets_.clear();
  slots_.assign(parameter_at.size(), {});
  wire_bytes_ = 0;
  std::vector<DType> wire;
  for (const doc::Bucket& bucket : graph.buckets) wire.push_back(bucket.dtype);
  for (const doc::Task& task : graph.tasks)
    if (is_communication(task.kind) && task.first <= task.last)
      wire[static_cast<std::size_t>(task.first)] = task.wire;
  for (std::size_t b = 0; b < graph.buckets.size(); ++b) {
    const doc::Bucket& bucket = graph.buckets[b];
    BucketTensors tensors{zeros(bucket.elements, bucket.dtype), {}, wire[b]};
    if (wire[b] != bucket.dtype) tensors.wire = zeros(bucket.elements, wire[b]);
    std::int64_t offset = 0;
    for (std::int32_t m = bucket.begin; m < bucket.end; ++m) {
      const auto position = static_cast<std::size_t>(graph.members[static_cast<std::size_t>(m)]);
      const at::Tensor& like = parameter_at[position];
      // Not as_strided(): optimizers detach_() gradients in zero_grad(), which autograd refuses for
      // views.
      const auto slice = [&](const at::Tensor& flat) {
        at::Tensor slot = at::zeros({0}, flat.options());
        return slot.set_(flat.storage(), offset, like.sizes(), like.strides());
      };
      slots_[position] = {slice(tensors.values),
                          tensors.wire.defined() ? slice(tensors.wire) : at::Tensor()};
      offset += like.numel();
    }
    LINERATE_CHECK(offset == bucket.elements, "a bucket of " + std::to_string(bucket.elements) +
                                                  " elements holds " + std::to_string(offset));
    wire_bytes_ += bucket.elements * size_of(wire[b]);
    buckets_.push_back(std::move(tensors));
  }
}

bool BucketMemory::is_view(std::int32_t position, const at::Tensor& gradient) const {
  const at::Tensor& slot = view(position);
  return gradient.data_ptr() == slot.data_ptr() && gradient.strides() == slot.strides();
}

void BucketMemory::fill(std::int32_t position, const at::Tensor& gradient, double scale) {
  if (gradient.layout() != at::kStrided)
    throw UsageError("gradient " + std::to_string(position) +
                     " of the plan is sparse; only dense gradients are exchanged");
  Slot& slot = slots_[static_cast<std::size_t>(position)];
  if (!is_view(position, gradient)) {
    at::mul_out(slot.view, gradient, c10::scalar_to_tensor(scale));
  } else if (scale != 1) {
    slot.view.mul_(scale);
  }
  if (slot.wire.defined())
    slot.wire.copy_(slot.view);  // scaled before the cast: fp16 overflows at 65504
}

void BucketMemory::fill_zeros(std::int32_t position) {
  Slot& slot = slots_[static_cast<std::size_t>(position)];
  slot.view.zero_();
  if (slot.wire.defined()) slot.wire.zero_();
}

comm::Buffer BucketMemory::buffer(const doc::TaskGraph&, const doc::Task& task) {
  const BucketTensors& bucket = buckets_.at(static_cast<std::size_t>(task.first));
  const at::Tensor& moved = bucket.wire.defined() ? bucket.wire : bucket.values;
  return {moved.data_ptr(), {moved.numel()}, bucket.wire_dtype};
}

void BucketMemory::arrived(const doc::TaskGraph&, const doc::Task& task) {
  BucketTensors& bucket = buckets_.at(static_cast<std::size_t>(task.first));
  if (bucket.wire.defined()) bucket.values.copy_(bucket.wire);
}

}  // namespace linerate::torch_adapter
