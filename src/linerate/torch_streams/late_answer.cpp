#include "linerate/torch_streams/late_answer.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace linerate::torch_streams {

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
