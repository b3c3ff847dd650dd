// How a model is made data-parallel.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/doc/cluster.hpp"

namespace at {
class Tensor;
}
namespace linerate::exec {
class Recorder;  // exec/recorder.hpp
}

namespace linerate::torch_adapter {

class KFAC;

/// The treatment of buffers, such as batch-norm statistics, after each synchronised step. All ranks
/// start with rank 0's.
enum class BufferPolicy {
  broadcast,  // every rank takes rank 0's, as PyTorch's DistributedDataParallel does
  keep,       // every rank keeps its own
};

/// How gradients are exchanged, and what else happens in a step.
struct DataParallelOptions {
  /// "bulk", "ddp", "optimal", "dear", with options: "ddp(bucket=10MiB)", "ddp(wire=bf16)".
  /// `linerate list strategies`; one that cannot train is refused, with the reason. "auto" begins
  /// as "ddp". From the first window of `measured_steps` on it takes the exchange whose step is
  /// predicted shortest, by a probe of the live collectives.
  std::string strategy = "ddp";
  BufferPolicy buffers = BufferPolicy::broadcast;  // of the model, after each step that exchanges
  /// Prices collectives for strategies that plan by cost. Absent: all-reduces are probed once, at
  /// the first planning.
  std::optional<doc::Cluster> cluster = {};
  /// Steps whose ready times the one re-planning of such a strategy uses.
  int measured_steps = 5;
  /// With "auto": if measured steps depart from the predicted one by more than this share,
  /// collectives are probed again and a new Plan is made. The measured step is the median of a
  /// window of `measured_steps` steps, mean over the ranks. With a preconditioner it is a window of
  /// so many updates of factors, and there is no probe. Infinity: no new Plan after the first
  /// window.
  double replan_above = 0.2;
  /// If finite: by how large a share steps may be longer than ddp's, as a trial shows. Exchanges
  /// that plan by cost ("dear", "optimal", "mg-wfbp") are tried, and any that "auto" chooses. Both
  /// run in turn, in two blocks each of `measured_steps` steps and one more. Then the ranks decide
  /// together, and ddp, with the same wire format and extras, may stay. Not with K-FAC.
  double most_above_ddp = std::numeric_limits<double>::infinity();
  /// Seed of the compressors' random numbers: the same on every rank.
  std::uint64_t seed = 0;
  /// The strategy shares its steps among the ranks: "ddp+kfac(spd)". For the same model; outlives
  /// the DataParallel. The strategy's intervals count, not its options'.
  KFAC* preconditioner = nullptr;
  /// For programs that learn the scale of a loss in its backward pass: gives the scale of the
  /// present pass. It is asked with each gradient, on the gradient's thread. Absent, or without a
  /// value: as DataParallel::set_loss_scale() said last.
  std::function<std::optional<double>()> scale_of_pass = {};
  /// Records the tasks that linerate executes and the updates of step(). With a device_group it
  /// records by the device's times, and Recorder::now() has moments of the device, too. Outlives
  /// the DataParallel. Null: nothing is recorded.
  exec::Recorder* recorder = nullptr;
  /// The name of the c10d::ProcessGroup whose collectives move the parameters' memory, wherever
  /// they lie (NCCL's, for a GPU), of the communicator's ranks in their order. Steps are enqueued
  /// then, and gradients that are not finite count as zero
  /// (docs/devices.md). What ranks say to each other besides goes through the communicator. Empty:
  /// parameters are on the CPU, and the communicator exchanges them.
  std::string device_group = {};
  /// Stands in errors and, with the step's number, in the names of collectives. Give one if several
  /// objects share a communicator.
  std::string name = {};
};

/// Parameters or buffers with the names that errors and Plans call them.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace linerate::torch_adapter
