// The costs of K-FAC's parts on this machine, measured with the layers and operations of training.
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

/// The sizes of the matrices that are inverted, in rows. Between these and beyond the largest,
/// times are taken to grow as the cube. The largest comes first, since it takes so long that
/// loading the solver's code into the cache does not matter.
inline constexpr std::array<std::int64_t, 14> kInverseDimensions = {
    1944, 1296, 864, 576, 384, 256, 192, 128, 96, 64, 48, 32, 16, 8};

/// Measures factors, directions and inverses in f32, inverses by Cholesky. All ranks measure at
/// once, each with so many threads, which stay set. Returns medians of rounds, means over ranks.
/// Collective; the same on every rank.
doc::SecondOrderSamples measure_second_order(comm::Communicator& communicator, int threads);

/// The same on the queue's device, by the code that enqueues a step there. Inverts matrices of
/// `dims` rows, also several of one size in one call. `notes`: where the host was slower than the
/// device. Collective.
doc::SecondOrderSamples measure_second_order_on(TimedQueue& queue, comm::Communicator& communicator,
                                                std::span<const std::int64_t> dims,
                                                std::vector<std::string>& notes);

/// Times `count` matrices of each size, one by one and together, by the code that inverts in a
/// step. Collective.
std::vector<doc::BatchSample> measure_batches(TimedQueue& queue, comm::Communicator& communicator,
                                              std::span<const std::int64_t> dims, int count);

}  // namespace linerate::torch_adapter
