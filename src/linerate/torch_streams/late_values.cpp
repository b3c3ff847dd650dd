#include "linerate/torch_streams/late_values.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace linerate::torch_streams {

void LateValues::ask(const at::Tensor& values) {
  const c10::Device device = values.device();
  Asked& asked = asked_.emplace_back();
  asked.there = values;
  // A copy into memory that is not pinned would make the host wait.
  asked.here =
      at::empty(values.sizes(), at::TensorOptions(at::kDouble).pinned_memory(!device.is_cpu()));
  asked.here.copy_(values, /*non_blocking=*/true);
  if (device.is_cpu()) return;
  asked.event.emplace(device.type());
  asked.event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

std::optional<at::Tensor> LateValues::take() {
  if (asked_.empty() || (asked_.front().event && !asked_.front().event->query()))
    return std::nullopt;
  const at::Tensor here = asked_.front().here;
  asked_.pop_front();
  return here;
}

void LateAnswer::ask(const at::Tensor& answer) {
  const c10::Device device = answer.device();
  asked_ = asked_.defined() ? asked_.logical_or(answer) : answer;
  // A copy into memory that is not pinned would make the host wait.
  here_ =
      at::empty(at::IntArrayRef(), at::TensorOptions(at::kBool).pinned_memory(!device.is_cpu()));
  here_.copy_(asked_, /*non_blocking=*/true);
  if (device.is_cpu()) return;
  if (!there_) there_.emplace(device.type());
  there_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

std::optional<bool> LateAnswer::take() {
  if (!asked_.defined() || (there_ && !there_->query())) return std::nullopt;
  asked_.reset();
  return *here_.const_data_ptr<bool>();
}

}  // namespace linerate::torch_streams
