// A factor's state on its way from its owner. Private to torch_adapter.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "linerate/comm/communicator.hpp"
#include "linerate/torch_adapter/kfac/kfac_state.hpp"

namespace linerate::torch_adapter {

/// `factor` becomes that of rank `root`, on every rank; `elements` packed ones of this type.
/// Collective.
void broadcast_factor(comm::Communicator& communicator, int root, std::int64_t elements,
                      at::ScalarType dtype, KfacState::Factor& factor);

}  // namespace linerate::torch_adapter
