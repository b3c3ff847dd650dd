// Computation to measure contention with: what runs on a rank's cores while its collectives travel.
#pragma once

#include <barrier>
#include <cstddef>
#include <thread>
#include <vector>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// For one of `ranks` processes on this machine: its cores over the ranks, at least 1.
int threads_per_rank(int ranks);

/// Work of a fixed amount per slice, about a millisecond: short against a collective, long against
/// a clock reading. torch_adapter can implement it with real layers; calibrate brings
/// EmulatedTraining.
class ComputeLoad {
 public:
  virtual ~ComputeLoad() = default;
  virtual void run_slice() = 0;
};

/// Stands for backward of a convolutional network on a CPU, on as many threads as training would
/// use. A slice has blocked matrix products in the second-level cache, as convolutions and linear
/// layers do. It also has one pass over a few megabytes, as batch norm and activations do. Both
/// take equal times within a factor of two.
///
/// The calling thread is the first worker. Each other worker waits at one barrier for the slice to
/// begin, and meets the others at a second one when it is done.
class EmulatedTraining final : public ComputeLoad {
 public:
  explicit EmulatedTraining(int threads = 1);
  ~EmulatedTraining() override;
  void run_slice() override;

 private:
  struct Worker {
    std::vector<float> a, b, c, stream;
    std::size_t position = 0;
    void run();
  };

  std::vector<Worker> workers_;
  std::barrier<> start_, end_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// How much computation, communication and coding slow each other down when they are active on the
// same ranks.

struct ContentionProbeOptions {
  /// All-reduces of one round, back to back, as a step of bucketed training sends them.
  std::vector<Bytes> exchange = {MiB(1), MiB(8), MiB(16)};
  Duration budget{4};
  int fewest_rounds = 3;
  int messages = 20;  // small all-reduces of each kind in one round
  Progress progress = {};
};

/// Every round, on all ranks at once: computation alone, communication alone, both together. If 100
/// slices a second run alone and 80 during the exchange, compute_slowdown is 1.25. If the exchange
/// takes 10 ms alone and 12 ms during computation, communication_slowdown is 1.2.
///
/// - compute_slowdown: slices a second alone / slices a second over the exchange.
/// - communication_slowdown: time of the exchange while all ranks compute / while they sleep.
/// - coding_slowdown: slices a second alone / slices a second while a thread of each rank casts.
/// - message_s: processor time of a rank over a small all-reduce, less that over as long a rest.
/// - message_delay_s: time of a small all-reduce while all ranks compute, less that while they
/// wait;
///   the mean of as many as `messages`, back to back.
///
/// Medians over rounds, mean over ranks; slowdowns are at least 1. Computation "alone" has all
/// ranks computing, because cores shared by ranks are no cost of communication. Collective; every
/// rank returns the same.
doc::Contention probe_contention(comm::Communicator& communicator, ComputeLoad& load,
                                 const ContentionProbeOptions& options);

/// As good as no bytes: the rest is waking and handing over.
constexpr Bytes kMessage = KiB(4);

/// An all-reduce of kMessage that finds the communicator idle.
struct IdleStart {
  /// The longest time from submission to the first message: the sleep of the progress thread.
  double longest_sleep_s = 0;
  /// The median time from the end of 20 ms of silence until a rank that waits for it goes on.
  double call_s = 0;
};

/// In 20 trials. Collective; every rank returns the same.
IdleStart probe_idle_start(comm::Communicator& communicator);

}  // namespace linerate::calibrate
