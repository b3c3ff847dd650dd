// Workload: what one rank computes in one training step, and which gradients leave it. Never knows
// a network.
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/doc/block.hpp"

namespace linerate::doc {

/// A layer in forward order. Times are of one rank computing alone, medians over steps; absent
/// means unknown.
struct Layer {
  std::string name;                    // module path: "layer1.0.conv1"
  std::string kind{};                  // "conv2d", "linear", "batch_norm", ...
  std::optional<double> forward_s{};   // of the layer
  std::optional<double> backward_s{};  // of the layer
  double flops = 0;                    // forward, per sample; 0 if unknown
};

/// A gradient tensor. Workload::gradients lists them in the order in which backward makes them
/// ready.
struct Gradient {
  std::string name;           // "layer1.0.conv1.weight"
  std::int64_t elements = 0;  // of the tensor
  DType dtype = DType::f32;   // element type
  int layer = -1;             // index into Workload::layers; -1: unknown
  int registration = 0;       // position among the model's parameters in registration order
  double ready_s = 0;  // since the start of backward, of one rank computing alone; never decreasing
  /// Its first dimension if it has two or more; 1: a vector. Absent: unknown.
  std::optional<std::int64_t> rows{};
  /// A step may train several models in turn, or one model several times. Each has a backward pass,
  /// an exchange and an update of its own. This is the number of the turn that makes the gradient;
  /// from 0, never decreasing.
  int turn = 0;

  /// Of the whole tensor.
  std::int64_t bytes() const { return elements * size_of(dtype); }
};

/// Measured time to add two vectors of `bytes` bytes each on the device (Zhang et al. 2020,
/// AddEst).
struct AddCost {
  double bytes = 0;    // of each vector
  double seconds = 0;  // to add them
};

/// The step of the job that a Workload was made from, with its exchange (T_n).
struct RecordedStep {
  double step_s = 0;  // median; unit of Workload::step_s
  int ranks = 0;      // of the job
  /// No faster network makes it shorter: what the ceiling of `linerate explain` leaves of step_s.
  /// Absent: unknown.
  std::optional<double> least_s{};
  bool on_cpu = false;  // the processors that computed carried the messages, too
};

/// How much longer a recorded step of several ranks computes than one rank alone: caches are cold
/// after waiting, gradients are copied into buckets, and messages use the same cores.
struct SeveralRanks {
  double compute_factor = 1;  // of computing while nothing travels, at least 1
  /// Network time of the recorded step. A step that communicates half as long waits less, so it has
  /// half of what compute_factor adds. A longer one has all of it. Absent: every step has that.
  std::optional<double> communication_s{};
  /// Of computing while messages travel, on top of the factor, at least 1. It replaces that of a
  /// Cluster that knows contention, because it is of the job's own operators. Absent: unknown.
  std::optional<double> compute_slowdown{};
};

/// The part of a step in which a collective that is not of gradients runs.
enum class StepPlace : std::uint8_t { forward, backward, update };
/// What name_of() gives, by value.
inline constexpr std::array<std::string_view, 3> kStepPlaceNames = {"forward", "backward",
                                                                    "update"};
[[nodiscard]] constexpr std::string_view name_of(StepPlace p) {
  return kStepPlaceNames[static_cast<std::size_t>(p)];
}

/// A collective of the job that is not of gradients, such as SyncBatchNorm's sums of statistics or
/// ZeRO's gathers of parameters. The computation waits for it.
struct OtherCollective {
  Collective collective = Collective::all_reduce;  // neither reduce nor barrier
  std::int64_t bytes = 0;  // S of core/dtype.hpp; with per_rank of one rank's part
  /// S is `bytes` times the ranks of the group: gathered statistics. False: S is the same on any
  /// number of ranks.
  bool per_rank = false;
  /// So many ranks, neighbours by number, do it together; ranks that are left over form the last
  /// group. 0: all ranks of the job. Not 1.
  int group = 0;                         // ranks
  StepPlace place = StepPlace::forward;  // the part of the step
  /// Since the start of the forward or backward pass, of one rank computing alone. An update has
  /// none: what stands there runs after it.
  double at_s = 0;
  int every = 1;  // once in so many steps
};

/// Schema 1. Unknown is absent, never 0.
struct Workload {
  std::string name;                 // for messages
  std::string source;               // its origin, for people
  std::vector<Layer> layers;        // forward order; empty: unknown
  std::vector<Gradient> gradients;  // ready order
  double backward_s = 0;            // whole backward pass, at least the last ready_s
  std::optional<double> forward_s;  // whole forward pass, loss included
  std::optional<double> update_s;   // optimizer step
  std::optional<double> tail_s;     // data loading and host work that nothing overlaps
  std::optional<double> step_s;     // one-device step as its source measured it (T_1)
  std::optional<double> step_low_s, step_high_s;  // its interval; absent: unknown
  std::string step_origin;                        // how step_s was found, for people
  std::vector<AddCost> add_cost;                  // empty: unknown
  std::vector<Block> blocks;        // forward order; empty: unknown, or no layer has factors
  std::int64_t batch_per_rank = 0;  // 0: unknown
  std::int64_t buffer_bytes = 0;    // buffers broadcast each forward (batch-norm statistics)
  int accumulation = 1;  // backward passes that add up before one exchange; step_s holds them all
  std::string current;   // the strategy that its source shows in use; empty: unknown
  std::optional<RecordedStep> recorded{};          // that step as measured, under `current`
  std::optional<SeveralRanks> several_ranks{};     // absent: they compute as one rank does
  std::vector<OtherCollective> other_collectives;  // of a place in the order in which they run
  // The times of forward, backward and layers are one total shared out, 1 : 2 and by FLOPs.
  bool split_by_flops = false;

  /// For messages: the Workload "resnet50".
  std::string in_words() const;
  /// Of all gradients together.
  std::int64_t gradient_bytes() const;
  /// How many models a step trains one after the other (Gradient::turn); 1: as usual.
  int turns() const { return gradients.empty() ? 1 : gradients.back().turn + 1; }
  /// Whether it says of any gradient if it is a matrix, as compressors by factors have to know.
  bool knows_shapes() const;
  /// T_1: step_s if measured, else the sum of the known parts.
  double one_rank_step_s() const;
  /// All of T_1 except backward.
  double outside_backward_s() const;
};

/// T_1, its interval and how it was found, in a sentence.
[[nodiscard]] std::string step_in_words(const Workload& workload);

/// The same job with gradients and computation `factor` times as large, 0.1 for a tenth. Elements
/// (each gradient keeps at least one), factors, buffers, other collectives, flops and times are
/// scaled. What describes the device (add_cost) stays. Throws UsageError for a factor that is not
/// above 0.
[[nodiscard]] Workload scaled(Workload workload, double factor);

[[nodiscard]] std::string to_json(const Workload&);
/// `place` names the document in errors. Throws InputError with the JSON path of what is wrong.
[[nodiscard]] Workload workload_from_json(const std::string& text, const std::string& place);
[[nodiscard]] Workload load_workload(const std::filesystem::path&);
void save(const Workload&, const std::filesystem::path&);

}  // namespace linerate::doc
