// Measures a running job's own network and cores: a Communicator -> a Cluster, in about ten
// seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/contention_probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::calibrate {

struct ProbeOptions {
  Duration budget{10};                      // all probes together
  Bytes largest = MiB(64);                  // largest collective
  std::vector<doc::Component> codecs = {};  // not in the budget; on every rank at once
  Progress progress = {};
};

/// Throws UsageError in a world of one rank.
void require_network(const comm::Communicator& communicator);

/// Measures these in order:
///
/// 1. all-reduce, reduce-scatter, all-gather and broadcast, with the noise floor of an A/A run
/// 2. the slowdown of computation and communication by each other (`load` on every rank)
/// 3. the progress thread's sleep
/// 4. the machines' cores
/// 5. what sums of 16-bit numbers take beyond those of f32
/// 6. the codecs
///
/// Collective: every rank calls it and gets the same Cluster. Throws as require_network().
doc::Cluster probe_cluster(comm::Communicator& communicator, ComputeLoad& load,
                           const ProbeOptions& options = {});

// A short measurement of collectives between the ranks that will train: enough to choose bucket
// sizes by. For predictions use `linerate calibrate`.

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

// What the machines of a job have besides its network: cores, and what adding 16-bit numbers takes.

/// Cores of all machines that the ranks run on, each machine counted once: containers and network
/// namespaces of one kernel are one machine.
/// Collective; every rank returns the same.
int probe_cores(comm::Communicator& communicator);

/// How many ranks before this one run on its machine. Collective.
int rank_on_machine(comm::Communicator& communicator);

struct HalfSumProbeOptions {
  Bytes size = MiB(4);  // of one all-reduce
  Duration budget{0.5};
  int fewest_rounds = 5;
};

/// Seconds a byte that sums of f16 numbers take longer than as many bytes of f32; at least 0.
/// All-reduces of both types are timed in turn. A rank adds the share (n-1)/n of the bytes. On four
/// ranks 4 MiB are 3 MiB to add, so 0.6 ms more are 0.2 ms for each MiB. Collective; every rank
/// returns the same.
double probe_half_sum(comm::Communicator& communicator, const HalfSumProbeOptions& options = {});

// What codecs and K-FAC's parts cost where tensors lie: asked for and fitted here, measured by
// LibTorch.

struct DeviceWork {
  std::string device;  // as PyTorch names it: "cuda", "cuda:1", "cpu"
  std::vector<doc::Component> codecs = {};
  bool second_order = false;
  int threads = 1;  // of operators on the CPU
};

struct DeviceSamples {
  std::string device;  // its type: "cuda"
  std::vector<CodecSamples> codecs = {};
  std::optional<doc::SecondOrderSamples> second_order = {};
  std::vector<std::string> notes = {};
};

/// Means over ranks, the same on every rank. Collective. Throws UsageError for what is no device's
/// name and DeviceError for a device that is not there, on every rank.
using DeviceProbe = std::function<DeviceSamples(comm::Communicator&, const DeviceWork&)>;

/// Fits what was measured and puts it where what processors take would be. Ranks that compute on an
/// accelerator share no cores.
void add_device_samples(doc::Cluster& cluster, const DeviceSamples& samples);

}  // namespace linerate::calibrate
