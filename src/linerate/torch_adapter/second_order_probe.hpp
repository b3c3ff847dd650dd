// What K-FAC's parts cost on this machine, measured with the layers and operations of training.
#pragma once

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/second_order_cost.hpp"

namespace linerate::torch_adapter {

/// f32, inverses by Cholesky. All ranks measure at once, each with so many threads, which stay set:
/// medians of rounds, means over ranks. Collective; the same on every rank.
doc::SecondOrderSamples measure_second_order(comm::Communicator& communicator, int threads);

}  // namespace linerate::torch_adapter
