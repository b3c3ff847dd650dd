#include "linerate/torch_adapter/kfac/state_exchange.hpp"

#include <ATen/ops/empty.h>

#include <array>

#include "linerate/torch_adapter/element_type.hpp"

namespace linerate::torch_adapter {

void broadcast_factor(comm::Communicator& communicator, int root, std::int64_t elements,
                      at::ScalarType dtype, KfacState::Factor& factor) {
  std::array<double, 5> about = {static_cast<double>(factor.updates), factor.damping,
                                 factor.has_inverse ? 1.0 : 0, factor.average.defined() ? 1.0 : 0,
                                 factor.inverted.defined() ? 1.0 : 0};
  communicator
      .broadcast({about.data(), {static_cast<std::int64_t>(about.size())}, DType::f64}, root,
                 "state of a factor")
      ->wait();
  factor.updates = static_cast<std::int64_t>(about[0]);
  factor.damping = about[1];
  factor.has_inverse = about[2] != 0;
  const auto send = [&](at::Tensor& values, bool there) {
    if (!there) return values.reset();
    values = communicator.rank() == root ? values.contiguous() : at::empty({elements}, dtype);
    communicator.broadcast({values.data_ptr(), {elements}, *dtype_of(dtype)}, root, "a factor")
        ->wait();
  };
  send(factor.average, about[3] != 0);
  send(factor.inverted, about[4] != 0);
}

}  // namespace linerate::torch_adapter
