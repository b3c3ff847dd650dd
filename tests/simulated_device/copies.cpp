// Copies within a device, to it and from it.
#include <ATen/ops/_local_scalar_dense.h>
#include <torch/library.h>

#include <cstring>

#include "simulated_device/memory.hpp"
#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

struct Place {
  int device, stream;
};
Place place_of(const at::Tensor& tensor) {
  const int device = tensor.device().index();
  return {device, of_thread().streams.at(static_cast<std::size_t>(device))};
}

/// When the host knows that the work that was enqueued last in this stream is over, or at once if
/// it waits.
void when_over(const Place& place, std::function<void()> arrive) {
  State& d = state(place.device);
  const Lock lock(d.mutex);
  d.late.push_back({place.stream, d.order.event(place.stream)[place.stream], std::move(arrive)});
}

void to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const Place place = place_of(to);
  seen_by_kernels(to).copy_(from);
  work(place.device, place.stream, "copy_ to the device", {}, ranges_of(to), 1);
  if (!non_blocking || !is_pinned(from.const_data_ptr()))
    return host_waits(place.device, place.stream, "copy of pageable memory");
  // The stream reads it when it comes to that: the host may not have changed it by then.
  when_over(place, [place, from, then = from.clone(), task = of_thread().task()] {
    if (std::memcmp(from.const_data_ptr(), then.const_data_ptr(), then.nbytes()) != 0)
      ++state(place.device)
            .asked.conflicts[in_words("pinned memory was changed under a copy", task)];
  });
}

void to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const Place place = place_of(from);
  work(place.device, place.stream, "copy_ to the host", ranges_of(from), {}, 1);
  if (!non_blocking || !is_pinned(to.const_data_ptr())) {
    host_waits(place.device, place.stream, "copy to pageable memory");
    to.copy_(seen_by_kernels(from));
    return;
  }
  std::memset(to.data_ptr(), 0x5A, to.nbytes());
  when_over(place, [to, now = seen_by_kernels(from).clone()] { to.copy_(now); });
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (from.is_cpu()) {
    to_device(from, to, non_blocking);
  } else if (to.is_cpu()) {
    to_host(from, to, non_blocking);
  } else {
    TORCH_CHECK(from.device() == to.device(), "simulated devices copy nothing to each other");
    const Place place = place_of(to);
    seen_by_kernels(to).copy_(seen_by_kernels(from));
    work(place.device, place.stream, "copy_", ranges_of(from), ranges_of(to), 1);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  const Place place = place_of(tensor);
  work(place.device, place.stream, "_local_scalar_dense", ranges_of(tensor), {}, 0);
  host_waits(place.device, place.stream, "_local_scalar_dense");
  return at::_local_scalar_dense(seen_by_kernels(tensor));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

}  // namespace
}  // namespace linerate::simulated
