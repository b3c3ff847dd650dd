#include "linerate/torch_adapter/streams/late_values.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace linerate::torch_adapter {

void LateValues::ask(const at::Tensor& values) {
  const c10::Device device = values.device();
  Asked& asked = asked_.emplace_back();
  asked.there = values;
  // A copy into memory that is not pinned would make the host wait.
  asked.here = at::empty(values.sizes(),
                         at::TensorOptions(values.scalar_type()).pinned_memory(!device.is_cpu()));
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

std::optional<bool> LateAnswer::take() {
  while (const std::optional<at::Tensor> one = asked_.take())
    come_ = come_.value_or(false) || *one->const_data_ptr<bool>();
  return asked_.is_empty() ? std::exchange(come_, std::nullopt) : std::nullopt;
}

}  // namespace linerate::torch_adapter
