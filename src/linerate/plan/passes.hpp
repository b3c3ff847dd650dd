// The passes that make a step, in the order in which they run: each reads what the ones before it
// left in the StepDraft. A new algorithm is one more pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/draft.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/kfac/curvature.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/plan/make_plan.hpp"

namespace linerate::plan {

class CompressionModel;

struct PassInput {
  const doc::Workload& workload;
  const cost::CostModel& cost;
  const WireForm& form;
  const CodecModel* codec = nullptr;              // null: buckets travel as they are
  const CompressionModel* compression = nullptr;  // without a codec only; null: none
  const Housekeeping* housekeeping = nullptr;     // null: none
  const Curvature* curvature = nullptr;           // null: first-order steps
  Schedule schedule = Schedule::overlapped;
  int ranks = 1;
  bool first_step = false;  // how many gradients a parameter gets is not known yet
  bool weighted = false;    // ranks' batches differ in size
  int phase = -1;           // of Compressor::phases(); -1: steps are planned as if all were alike
  CurvatureUpdate update = {};
  std::int64_t in_period = 0;  // the step's number, where other collectives run once in several
};

/// The place in which a codec of this cost codes in such a step. Decoupled exchanges reach into the
/// next step, so no computation can wait for them. In training threads of linerate code.
inline doc::CodingPlace coding_place(const PassInput& input, doc::CodingPlace on) {
  const bool in_lane = input.schedule == Schedule::decoupled || input.housekeeping;
  return in_lane ? doc::CodingPlace::codec : on;
}

/// How a bucket leaves its rank and comes back.
struct BucketExchange {
  Handle ready = kNoTask;      // its last gradient is in place
  Handle counts = kNoTask;     // before `send`: how much each rank sends, if a bound is known
  Handle send = kNoTask;       // the collective, or its first half
  Handle receive = kNoTask;    // the second half; `send` if there is none
  Handle received = kNoTask;   // the values are there: the collective or its decode
  Handle sent_last = kNoTask;  // its last collective, if computation waits for all of them

  /// Its first collective.
  Handle first() const { return counts == kNoTask ? send : counts; }
};

/// A step under construction, in which passes find each other's tasks.
struct StepDraft {
  /// At the end of the computation, before the step's tail.
  Handle append_compute(const doc::Task& task);
  /// The same, and before the flags that the step's end waits for.
  Handle append_before_settling(const doc::Task& task);
  /// Appends a collective that the step's own end waits for. It comes before the second halves of
  /// decoupled exchanges, which may wait until the next step.
  Handle append_collective(const doc::Task& task);
  /// Puts a task between computation, after a bucket's last gradient and after what was put there
  /// before.
  Handle put_into_compute(const doc::Task& task, std::size_t bucket);
  std::int32_t add_payload(const doc::Payload& payload);
  /// Of these members, which nothing pads.
  std::int32_t add_payload(doc::Payload payload, std::span<const std::int32_t> members);
  /// A task that does something with a payload.
  doc::Task task_on(std::int32_t payload, doc::TaskKind kind, doc::Resource resource,
                    std::string_view operation);
  /// Index of the operation without options of this name in the Plan.
  std::int16_t operation(std::string_view name);
  /// A broadcast of a new payload with these members; in no lane yet.
  doc::Task broadcast_of(const doc::Payload& payload, std::span<const std::int32_t> members,
                         std::int32_t group, std::int32_t root);

  doc::Plan* plan = nullptr;        // its operations and groups
  doc::TaskGraph* graph = nullptr;  // its payloads and members
  Draft tasks;

  std::vector<double> not_before;  // by bucket (Fusion::not_before)
  std::vector<Handle> forward;     // in order
  std::vector<Handle> backward;    // by position: after it autograd has left the gradient
  std::vector<Handle> ready;       // by position: after it the gradient is in its bucket
  Handle backward_end = kNoTask;
  Handle tail = kNoTask;
  Handle flags_packed = kNoTask;          // they ride with the last bucket
  Handle last_checked = kNoTask;          // the last encode that looks at gradients
  Handle samples = kNoTask;               // the batch's share is known, if ranks' batches differ
  std::vector<BucketExchange> exchanges;  // by bucket
  Handle put_last = kNoTask, put_after = kNoTask;  // put_into_compute(): the task, its gradient
  std::vector<Handle> settling;           // what the optimizer waits for besides the exchanges
  std::vector<Handle> updates;            // decoupled, by bucket: at the head of the next step
  FactorArrivals arrivals;                // factors of this step on their way
  std::vector<Handle> averages;           // in their order: running averages of what arrived
  std::vector<std::int32_t> averaged_by;  // by factor: which of them is its own
  Placement placement;                    // of inverses
  std::vector<Handle> inverted;           // by factor: its inverse is made, on its own ranks
  std::vector<Handle> inverse_sent;       // by message of the placement
  /// Decoupled, by block: its preconditioning at the head of the next step.
  std::vector<Handle> preconditioned;
};

/// Forward and backward as the Workload times them, and the time that no layer claims. It is the
/// first pass and sees nothing but the Workload, so every step of every configuration begins with
/// it. In training something follows the last gradient.
void add_compute(const doc::Workload& workload, bool in_training, StepDraft& step);
/// Whether the forward time of every layer is known, and every gradient names its parameter's
/// layer.
bool layers_are_timed(const doc::Workload& workload);
/// A task of the compute lane, which is about [first, last] of a subject.
doc::Task compute_task(doc::TaskKind kind, std::int16_t operation,
                       doc::Subject subject = doc::Subject::none, std::int32_t first = 0,
                       std::int32_t last = -1);
/// A computation that others drive and report.
doc::Task observed_task(doc::TaskKind kind, std::int16_t operation, double seconds);
/// Copies each gradient, scaled, into its bucket, if that is a task of the runner.
void add_collect(const PassInput& input, StepDraft& step);
/// Flags of used parameters and of the step ride with the last bucket if values are summed as they
/// are and in one piece. That bucket then waits for the end of backward, when all flags are known.
void add_flags(const PassInput& input, StepDraft& step);
/// One collective a bucket, as soon as the schedule lets it go.
void add_exchanges(const PassInput& input, StepDraft& step);
/// Decoupled schedules have a reduce-scatter and an all-gather instead (Zhang et al. 2023, DeAR).
/// The second half and the updates reach into the next step. Throws UsageError for payloads that
/// cannot be summed.
void split_exchanges(const PassInput& input, StepDraft& step);
/// One block a rank: zeros fill the last one.
void pad_to_blocks(doc::Payload& payload, int ranks);
/// [gradients] the bucket that holds it.
std::vector<std::size_t> bucket_of_gradients(const PassInput& input, const StepDraft& step);
/// Gradient::turn of a bucket's gradients.
inline int turn_of(const PassInput& input, const StepDraft& step, std::size_t bucket) {
  const doc::Payload& payload = step.graph->payloads[bucket];
  return input.workload.gradients[to_index(step.graph->members[to_index(payload.begin)])].turn;
}
/// A turn's backward begins once the exchanges of the turns before have arrived: an update lies
/// between them.
void add_turns(const PassInput& input, StepDraft& step);
/// Encode before a bucket's collective, decode after it. A compressor of the registry has its
/// rounds, and a dense payload of what it does not encode. Throws UsageError for payloads that a
/// decoupled schedule cannot split.
void add_coding(const PassInput& input, StepDraft& step);
/// Flags if none ride with a bucket, their unpacking, buffers, and sample counts. In decoupled
/// schedules all of it comes before the first all-gather, because the step may end there.
void add_housekeeping(const PassInput& input, StepDraft& step);
/// K-FAC's factors, in a step that updates them. Hooks compute them under forward and backward;
/// they are packed, summed and averaged.
void add_factors(const PassInput& input, StepDraft& step);
/// K-FAC's inverses, in a step that inverts. They follow the averages, are made by the ranks that
/// own them, and are sent from there.
void add_inverses(const PassInput& input, StepDraft& step);
/// Gradients become directions, which travel if their layers have owners; then the KL clip. With
/// decoupled schedules this is at the head of the next step, before the updates. Throws UsageError
/// for what decoupled schedules cannot carry.
void add_preconditioning(const PassInput& input, StepDraft& step);
/// The optimizer, once everything is there.
void add_update(const PassInput& input, StepDraft& step);
/// The Workload's other collectives, which the computation waits for; not in training, whose model
/// sends its own.
void add_other_collectives(const PassInput& input, StepDraft& step);

/// When a step with K-FAC ends, as the searches for its order and its placement see it: seconds
/// until every direction is made and every gradient there. Of a step whose inverses need no owners
/// of layers, after the passes that make it.
double step_end_s(const PassInput& input, const StepDraft& step);

// The kinds of steps that a strategy tells apart, and which one each step is.

/// A phase of the compressor, what K-FAC updates, and which other collectives run.
struct StepKind {
  std::string name;  // what a variant's name ends with: "warm-up.stale"; empty: there is one kind
  int phase = -1;    // of compress::Phases; -1: it has one
  CurvatureUpdate update = {};
  std::int64_t in_period = 0;  // of the other collectives: a step in which the same ones run
};

/// Step s is of kind warm_up[s] while s < warm_up.size(), then of kind
/// cycle[(s - warm_up.size()) % cycle.size()].
struct StepKinds {
  std::vector<StepKind> kinds;  // every phase with every update: a runner may choose any
  std::vector<std::int32_t> warm_up, cycle;
};

/// The kinds and their schedule, from a compressor's phases, K-FAC's intervals, and the intervals
/// in steps of other collectives (`every`). The cycle is as long as all together take to repeat.
/// Throws UsageError if that is longer than any schedule.
StepKinds step_kinds(const compress::Phases& phases, const std::optional<Kfac>& kfac,
                     const std::vector<int>& every = {});

// Where one step ends and the next begins: edges from the last collectives of a variant to the
// updates at the head of whichever follows.

/// Valid as long as the step's graph and what it was made with.
struct StepBorder {
  /// A task at the head of the step, and the positions of the gradients that it needs.
  struct Need {
    std::uint32_t task = 0;
    std::span<const std::int32_t> gradients;
  };
  std::vector<std::uint32_t> arrival;  // [gradients] the task that brings it back
  std::vector<Need> needs;
};

/// The border of a step whose tasks are in their places (Draft::linearise). `curvature` is null if
/// nothing is preconditioned.
void find_border(const doc::Workload& workload, const StepDraft& step, const Curvature* curvature,
                 StepBorder& border);

/// Appends edges to the graph of a step. Updates of variant `variant`, and what they wait for, wait
/// for the arrival of each of their gradients in the step before.
void join_steps(const StepBorder& from, doc::TaskGraph& graph, const StepBorder& to,
                std::int32_t variant);

// When factors and gradients of a step would be ready if nothing waited, and what they take on the
// network.

struct FactorTraffic {
  double backward_end_s = 0;
  std::vector<double> ready_s{};      // [factors]
  std::vector<Transfer> gradients{};  // buckets, which keep their order
  /// [blocks] the bucket that brings the last of its gradient.
  std::vector<std::size_t> last_bucket_of_blocks{};
  /// Seconds of an all-reduce of so many elements of so many factors.
  MessageSeconds seconds_of_sums{};
  /// Communication under forward and backward may be slower.
  Channel channel{};
};

/// `computed`: by factor, the task that computes it.
FactorTraffic traffic_of(const PassInput& input, const StepDraft& step,
                         std::span<const Handle> computed);

// In which order groups of factors and buckets of gradients go over the network.

/// Factors that travel together.
struct FactorGroup {
  std::vector<std::int32_t> members;
  double ready_s = 0;
  std::size_t bucket = 0;  // they leave before it; beyond the last: after all buckets
};

/// The network up to the last of both.
FactorArrivals arrivals_of(const PassInput& input, const FactorTraffic& traffic,
                           const std::vector<FactorGroup>& groups);

// Which factors travel together, and when (reference: Shi, Zhang & Li 2021, SPD-KFAC).

/// In their order on the network, which is agreed with the gradients'.
std::vector<FactorGroup> group_factors(const PassInput& input, const StepDraft& step,
                                       const FactorTraffic& traffic);

/// Groups leave as they get ready, not all after backward. How often a layer is used is not known
/// yet in the first step: its factors are whole once backward is over.
inline bool factors_overlap(const PassInput& input) {
  return input.curvature->kfac.overlaps_factors() && !input.first_step;
}

// What tensors add to the messages that they travel in.

/// How many tensors travel in the payloads of a task; flags and the like are one. 0: it has none.
std::int64_t tensors_of(const doc::TaskGraph& graph, const doc::Task& task);

/// Each collective takes `tensor_s` more for each tensor in its payloads (Cluster::tensor_s).
void add_tensor_times(double tensor_s, doc::TaskGraph& graph);

}  // namespace linerate::plan
