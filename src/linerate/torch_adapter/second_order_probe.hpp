// What K-FAC's parts cost on this machine, measured with the layers and operations of training.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/second_order_cost.hpp"

namespace linerate::torch_adapter {

class TimedQueue;

/// Of the matrices that are inverted. Between these and beyond the largest, times are taken to grow
/// as the cube. The largest first: it does not notice that the solver's code is not in the cache
/// yet.
inline constexpr std::array<std::int64_t, 14> kInverseDimensions = {
    1944, 1296, 864, 576, 384, 256, 192, 128, 96, 64, 48, 32, 16, 8};

/// f32, inverses by Cholesky. All ranks measure at once, each with so many threads, which stay set:
/// medians of rounds, means over ranks. Collective; the same on every rank.
doc::SecondOrderSamples measure_second_order(comm::Communicator& communicator, int threads);

/// The same where the queue's tensors lie, by the code that enqueues a step there, with inverses of
/// matrices of `dims` rows, of several of one size in one call, too. `notes`: where the host was
/// the slower one. Collective.
doc::SecondOrderSamples measure_second_order_on(TimedQueue& queue, comm::Communicator& communicator,
                                                std::span<const std::int64_t> dims,
                                                std::vector<std::string>& notes);

/// `count` matrices of each size, one by one and together, by the inverse of a step. Collective.
std::vector<doc::BatchSample> measure_batches(TimedQueue& queue, comm::Communicator& communicator,
                                              std::span<const std::int64_t> dims, int count);

}  // namespace linerate::torch_adapter
