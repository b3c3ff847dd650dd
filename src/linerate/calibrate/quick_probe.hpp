// A short measurement of collectives between the ranks that will train: enough to choose bucket
// sizes by. For predictions use `linerate calibrate`.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/calibrate/call_train.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/core/collective.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// The largest call that is timed for gradients of so many bytes: at most 16 MiB.
std::int64_t largest_probed(std::int64_t gradient_bytes);

/// One table for each of `kinds` (all-reduce, reduce-scatter, all-gather, broadcast), in their
/// order. It has means of three calls at sizes from 4 KiB up to `largest_bytes`, joined by straight
/// lines. A kind stops early once a size takes longer than 0.2 s: its last line then goes on.
///
/// `timer` times the calls, a CallSeries of this size; the communicator agrees on what they took.
/// The same Cluster on every rank. Collective; the machine should be as busy as in training. Throws
/// UsageError for another kind, or for none.
doc::Cluster quick_probe(comm::Communicator& communicator, CallTimer& timer,
                         std::int64_t largest_bytes, const std::vector<Collective>& kinds);

/// Lowers samples that noise made too long; they ascend by size. A call in k parts costs at most k
/// - 1 start-ups more than in one, and no start-up is longer than the smallest call. Example: 4, 16
/// and 64 KiB take 1, 3 and 4 ms. Four parts of 16 KiB take at most 4 + 3 x 1 = 7 ms, so 16 KiB
/// takes at most 1.75 ms.
///
/// On a slow link a few per cent of noise outweigh all start-ups. Fusion planned by such costs
/// would merge everything.
void bound_start_ups(std::vector<doc::CostSample>& samples);

/// Straight from sample to sample; the last line goes on. If the first line falls below zero, sizes
/// before its sample take the time of that sample in proportion. No segment has a negative time.
std::vector<doc::CostSegment> segments_between(const std::vector<doc::CostSample>& samples);

}  // namespace linerate::calibrate
