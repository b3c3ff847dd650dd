// Computation to measure contention with: what runs on a rank's cores while its collectives travel.
#pragma once

#include <barrier>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

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

}  // namespace linerate::calibrate
