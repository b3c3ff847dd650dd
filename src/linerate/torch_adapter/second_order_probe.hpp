// What K-FAC's parts cost on this machine, measured with the layers and operations of training.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/second_order_cost.hpp"

namespace linerate::torch_adapter {

class TimedQueue;

/// f32, inverses by Cholesky. All ranks measure at once, each with so many threads, which stay set:
/// medians of rounds, means over ranks. Collective; the same on every rank.
doc::SecondOrderSamples measure_second_order(comm::Communicator& communicator, int threads);

/// The same where the queue's tensors lie, by the code that enqueues a step there, and inverses of
/// matrices of one size in one call. `notes`: where the host was the slower one. Collective.
doc::SecondOrderSamples measure_second_order_on(TimedQueue& queue, comm::Communicator& communicator,
                                                std::vector<std::string>& notes);

/// `count` matrices of each size, one by one and together, by the inverse of a step. Collective.
std::vector<doc::BatchSample> measure_batches(TimedQueue& queue, comm::Communicator& communicator,
                                              std::span<const std::int64_t> dims, int count);

}  // namespace linerate::torch_adapter
