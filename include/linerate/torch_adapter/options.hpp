// How a model is made data-parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/compress/registry.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/kfac/kfac_report.hpp"

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

// Optimizers that LibTorch does not know, such as Python's: what DataParallel asks of them.

/// An optimizer that is stepped after an exchange, as far as it decides whether that is right.
struct SteppedOptimizer {
  std::string name;               // in messages: "SGD(momentum=0.9)"
  std::uintptr_t identity = 0;    // in two steps the same if it is the same one; not 0
  std::vector<at::Tensor> holds;  // its parameters; empty: unknown, and not looked at
  compress::StepsBy steps_by = compress::StepsBy::gradients;  // what its steps follow
};

/// One step, in parts: parameters are updated at different times. Each part is updated once, in any
/// order and on any thread, with the result of the whole step. Options (learning rates) are those
/// at capture(). Thread safety: called by one thread at a time, whichever it is.
class PartialUpdates {
 public:
  virtual ~PartialUpdates() = default;

  /// Begins the step that the optimizer would do now; parts[i] are parameters (those that the
  /// optimizer does not hold are left alone). What else it holds and has a gradient is updated at
  /// once.
  virtual void capture(const std::vector<std::vector<at::Tensor>>& parts) = 0;
  /// Updates the parameters of some parts: of part `which[i]`, whose k-th parameter has the
  /// gradient gradients[i][k], undefined if it has none. Their .grad is unchanged afterwards.
  virtual void update(const std::vector<std::size_t>& which,
                      const std::vector<std::vector<at::Tensor>>& gradients) = 0;
  /// Whether one update() of several parts is shorter than one of each. Then those that have
  /// arrived are updated together.
  virtual bool is_shorter_together() const { return false; }
  /// All parts have been updated.
  virtual void release() = 0;
};

// The outcome of a step.

/// A stretch in which an operator, or settle(), waited for an update of the last step. It waited
/// for the gradients until `update_ns`, then for the optimizer (steady clock).
struct HeldSpan {
  std::int64_t start_ns = 0, update_ns = 0, end_ns = 0;  // steady clock
};

/// The report of finish(), skip_step() or step() on this rank.
struct StepReport {
  std::string variant;  // of the plan
  /// Exposed communication in seconds: from the call until every gradient was there. If step() lets
  /// gradients follow, it is the time until the step's end was agreed on, plus the waits of the
  /// last forward pass.
  double exposed_s = 0;
  double copy_s = 0;          // in hooks: gradients made ready for their buckets
  std::int64_t bytes = 0;     // exchanged, in the wire's element types
  int unused_here = 0;        // parameters without a gradient on this rank
  int unused_everywhere = 0;  // on every rank: their .grad was left as it was
  int rounds = 0;             // exchanges: above 1 if gradients changed after they were sent
  /// The strategy compresses, and on some rank a gradient held an infinity, a NaN or a magnitude
  /// above 2^64 (exec::kGreatestGradient). It makes no difference if that gradient is encoded or
  /// travels dense. The step was skipped on all ranks, and no .grad is defined.
  bool infinite = false;
  /// Steps are enqueued (DataParallelOptions::device_group) under a compressor or K-FAC, and an
  /// earlier one would be `infinite` elsewhere. All its means were taken for zero on all ranks, and
  /// the step counted.
  bool late_infinite = false;
  std::int64_t host_waits = 0;      // how often the host waited for the device in this step
  std::vector<HeldSpan> held;       // since the report before
  std::vector<FactorSpan> factors;  // likewise
};

}  // namespace linerate::torch_adapter
