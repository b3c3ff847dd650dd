// The vocabulary shared by Plan and Timeline: what a task is and where it runs. As both use it,
// comparing predicted and measured is a join.
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/doc/block.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::doc {

/// What a task is.
enum class TaskKind : std::uint8_t {
  forward,
  backward,
  encode,
  decode,
  all_reduce,
  reduce_scatter,
  all_gather,
  all_gather_v,
  all_to_all,
  broadcast,
  factor,
  inverse,
  precondition,
  update,
  host,
  compute,  // imported traces: a kernel that no layer claims
  copy      // moves values on their own rank; imported traces: memcpy and memset
};
inline constexpr std::array<std::string_view, 17> kTaskKindNames = {
    "forward",      "backward",     "encode",     "decode",    "all-reduce", "reduce-scatter",
    "all-gather",   "all-gather-v", "all-to-all", "broadcast", "factor",     "inverse",
    "precondition", "update",       "host",       "compute",   "copy"};
[[nodiscard]] constexpr std::string_view name_of(TaskKind k) {
  return kTaskKindNames[static_cast<std::size_t>(k)];
}
/// Whether it is a collective.
[[nodiscard]] constexpr bool is_communication(TaskKind k) {
  return k >= TaskKind::all_reduce && k <= TaskKind::broadcast;
}
/// The collective that a communication task is; an all-gather-v counts as an all-gather. Throws
/// InternalError for other kinds.
[[nodiscard]] Collective collective_of(TaskKind kind);

/// Executed tasks are run by linerate; observed ones are driven by others (autograd, the user's
/// optimizer) and reported.
enum class Origin : std::uint8_t { executed, observed };

/// What first..last of a task count.
enum class Subject : std::uint8_t { none, layers, gradients, payloads, factors, inverses };
inline constexpr std::array<std::string_view, 6> kSubjectNames = {
    "none", "layers", "gradients", "payloads", "factors", "inverses"};
[[nodiscard]] constexpr std::string_view name_of(Subject s) {
  return kSubjectNames[static_cast<std::size_t>(s)];
}

/// Tasks of one rank on one resource run one after another in the order of the Plan.
enum class Resource : std::uint8_t { compute, network, codec, host };
inline constexpr std::array<std::string_view, 4> kResourceNames = {"compute", "network", "codec",
                                                                   "host"};
[[nodiscard]] constexpr std::string_view name_of(Resource r) {
  return kResourceNames[static_cast<std::size_t>(r)];
}

// Plan: the task graph of a training step, interpreted by sim, rehearse and train alike.
// Thread safety: values.

/// Plan::groups[0]: every rank.
inline constexpr std::int32_t kWhole = 0;

/// One task. `first..last` (inclusive) count its subject. Layers stand in forward order, gradients
/// by position in the Workload's ready order. Payloads are the variant's, factors and their
/// inverses go by index (factor_index). An empty subject has last < first.
struct Task {
  TaskKind kind = TaskKind::host;      // what it is
  Origin origin = Origin::executed;    // who runs it
  Resource resource = Resource::host;  // the lane that it takes
  Subject subject = Subject::none;     // what first and last count
  DType wire = DType::f32;             // collectives: element type on the wire
  bool bound = false;           // `bytes` is the most it can be; the number is known at run time
  std::int16_t operation = -1;  // index into Plan::operations; -1: the kind says it all
  /// The ranks that have this task (index into Plan::groups). Each does it by itself; a collective
  /// joins the ranks of each part of the group.
  std::int32_t group = kWhole;
  std::int32_t root = -1;             // broadcast: position in its part of the group
  std::int32_t first = 0, last = -1;  // of the subject, inclusive
  std::int64_t bytes = 0;  // S of a collective (core/dtype.hpp); input bytes of other tasks
  // As the Workload says; for collectives what comes on top of the cost model's price.
  double seconds = 0;
  std::int64_t expected = 0;  // of a bound: what `bytes` will usually be; 0: not known

  /// What the cost model prices: `expected` if it is known, else `bytes`.
  std::int64_t priced_bytes() const { return expected > 0 ? expected : bytes; }
};

/// The operation that changes the element type alone.
inline constexpr std::string_view kCast = "cast";

/// What a payload holds.
enum class Content : std::uint8_t {
  gradients,   // a bucket: members[begin, end), one after the other
  encoded,     // another payload, cast or compressed
  factors,     // members are sums of factors, one after the other, each as packed_elements() has
               // it, followed by its counts
  inverse,     // members are factors: their inverses, packed as they are, and after all of them a
               // status each (0: fine; else the owner failed and this is its last inverse)
  buffers,     // the model's buffers, packed
  flags,       // what ranks tell each other of a step (StepFlag), if no bucket carries it
  samples,     // how many samples this rank's batch holds
  counts,      // i64[ranks]: the elements of each rank's part of another payload (`of`)
  directions,  // members are blocks: their preconditioned gradients, one after the other
  eigen,       // as inverse, of eigendecompositions: eigen_elements(), vectors and then values
  other        // of the job's own collectives (OtherCollective): nothing of linerate's
};
inline constexpr std::array<std::string_view, 11> kContentNames = {
    "gradients", "encoded", "factors",    "inverse", "buffers", "flags",
    "samples",   "counts",  "directions", "eigen",   "other"};
/// What an inverse is sent as.
[[nodiscard]] constexpr bool holds_inverses(Content c) {
  return c == Content::inverse || c == Content::eigen;
}
[[nodiscard]] constexpr std::string_view name_of(Content c) {
  return kContentNames[static_cast<std::size_t>(c)];
}

/// Elements after the inverses of a payload for each of them: its status.
inline constexpr std::int64_t kInverseStatus = 1;
/// Elements after each sum of a factor: the rows or loss terms that were counted of its layer (0:
/// nobody used it), and the divisor of the sum.
inline constexpr std::int64_t kFactorCounts = 2;

/// Numbers that a rank tells the others of a step, each above zero for yes. The first are one for
/// each gradient, in the order of their positions: whether it was used here. Then follow these, of
/// the step as a whole.
enum class StepFlag : std::uint8_t {
  refused,   // this rank cannot finish the step
  changed,   // its parameters or buffers have other memory or another layout than planned for
  again,     // gradients changed after they were sent
  skipped,   // it discards the step
  finished,  // it wants the step's result
  infinite,  // the strategy compresses, and a gradient is not finite
};
/// How many of them a step sends that compresses nothing, and one that does.
inline constexpr std::int64_t kStepFlags = 5;
/// Flags of a step that compresses.
inline constexpr std::int64_t kCompressedStepFlags = 6;

/// One array that tasks fill, move and read.
struct Payload {
  Content content = Content::gradients;  // what it holds
  DType dtype = DType::f32;              // of each element
  std::int32_t begin = 0, end = 0;       // of TaskGraph::members, whose meaning the content says
  std::int32_t of = -1;                  // encoded, counts: the payload it stands for
  std::int64_t elements = 0;             // without padding
  std::int64_t flags = 0;   // the last of `elements`: StepFlags that ride with a bucket
  std::int64_t padded = 0;  // elements and zeros after them: what every rank count it is cut into
                            // divides

  /// Of its memory, padding included.
  std::int64_t bytes() const { return padded * size_of(dtype); }
};

/// An edge into the following step. If the following step runs variant `variant`, its task `to`
/// waits for `from` of this step.
struct NextStepEdge {
  std::uint32_t from = 0, to = 0;  // tasks, of this step and of the next one
  std::int32_t variant = 0;        // of the next step
};

/// A step as a graph of tasks, in topological order: every predecessor has a smaller index. Tasks
/// of one rank on one resource run in this order. The network carries collectives and nothing else.
/// Predecessors of task i are preds[pred_begin[i] .. pred_begin[i + 1]). Between ranks a task waits
/// for others through collectives alone: a predecessor that a rank does not have counts as met.
///
/// An example: tasks 0 and 1 are backward of two gradients, and task 2 is the all-reduce of both.
/// Then pred_begin is {0, 0, 0, 2} and preds is {0, 1}. Task 1 needs no edge from task 0, because
/// both are on the compute resource.
struct TaskGraph {
  std::string name;                          // the variant: "steady", "first-step", ...
  std::vector<Task> tasks;                   // in an order that respects predecessors
  std::vector<std::uint32_t> pred_begin{0};  // [tasks + 1], into preds
  std::vector<std::uint32_t> preds;          // tasks
  std::vector<NextStepEdge> next_step;       // what the next step waits for
  std::vector<Payload> payloads;             // buckets first, in the order in which they are sent
  // Gradient positions; those of payloads of factors and inverses: factors; of directions: blocks.
  std::vector<std::int32_t> members;

  /// Tasks that this one waits for.
  std::span<const std::uint32_t> predecessors(std::size_t task) const {
    return {preds.data() + pred_begin[task], preds.data() + pred_begin[task + 1]};
  }
  /// Payloads of gradients: they come first.
  std::span<const Payload> buckets() const;

  /// Appends a task that waits for the given earlier tasks; returns its index.
  template <typename... Ids>
  std::uint32_t add(const Task& task, Ids... after) {
    (preds.push_back(static_cast<std::uint32_t>(after)), ...);
    tasks.push_back(task);
    pred_begin.push_back(static_cast<std::uint32_t>(preds.size()));
    return static_cast<std::uint32_t>(tasks.size() - 1);
  }
  /// Gives the task appended last one more predecessor.
  void add_predecessor_to_last(std::uint32_t after) {
    preds.push_back(after);
    pred_begin.back() = static_cast<std::uint32_t>(preds.size());
  }
  /// Empties everything but keeps the memory: sweeps plan thousands of graphs.
  void clear();
};

/// Some ranks of the job, in parts that act apart: {"node", {{0, 1}, {2, 3}}}. No parts: all ranks,
/// together.
struct Group {
  std::string name;                              // unique within a Plan
  std::vector<std::vector<std::int32_t>> parts;  // ranks of each part, in their order

  /// The part that holds this rank, -1 if none does. "whole" is part 0 of everybody.
  std::int32_t part_of(std::int32_t rank) const;
  /// Whether the rank is in one of its parts.
  bool holds(std::int32_t rank) const { return part_of(rank) >= 0; }
  /// How many of the job's `ranks` act together in a part.
  std::int32_t size_of_part(std::int32_t part, std::int32_t ranks) const {
    return parts.empty() ? ranks
                         : static_cast<std::int32_t>(parts[static_cast<std::size_t>(part)].size());
  }
};

/// The shape of a gradient that a compressor may take for a matrix.
struct GradientShape {
  std::int64_t elements = 0, rows = 1;  // of the tensor; rows as compressors see them
  bool operator==(const GradientShape&) const = default;
};

/// Factors of all blocks are numbered through: those of block b are 2 b (A) and 2 b + 1 (G).
[[nodiscard]] constexpr std::int32_t factor_index(std::int32_t block, FactorSide side) {
  return 2 * block + static_cast<std::int32_t>(side);
}
/// The inverse of factor_index(): its block.
[[nodiscard]] constexpr std::int32_t block_of_factor(std::int32_t factor) { return factor / 2; }
/// The inverse of factor_index(): its side.
[[nodiscard]] constexpr FactorSide side_of_factor(std::int32_t factor) {
  return static_cast<FactorSide>(factor % 2);
}

/// The beginning of the names of variants that only the first step of a run takes.
inline constexpr std::string_view kFirstStep = "first-step";
/// The ends of names of variants that run between others: here K-FAC's steps without new inverses.
inline constexpr std::string_view kFactorsOnly = "factors";
inline constexpr std::string_view kStale = "stale";         // without new factors
inline constexpr std::string_view kWeighted = "-weighted";  // whose ranks differ in their samples
/// The name without those ends: what steps of one phase of a run have in common.
[[nodiscard]] std::string_view phase_of(std::string_view variant);

/// Schema 2 (schema 1 named neither operations nor groups nor payloads; it is refused). Step s runs
/// variant warm_up[s] while s < warm_up.size(), then cycle[(s - warm_up.size()) % cycle.size()]. A
/// runner may choose another variant by its name if all ranks agree.
struct Plan {
  std::string strategy;                        // canonical text
  std::string workload;                        // its name
  int ranks = 1;                               // that it is for
  std::vector<Component> operations;           // what tasks do: name and options
  std::vector<Group> groups{{"whole", {}}};    // that tasks name; the first is every rank
  std::vector<TaskGraph> variants;             // of a step
  std::vector<std::int32_t> warm_up;           // variants of the first steps
  std::vector<std::int32_t> cycle{0};          // variants of the steps after them, in turn
  std::vector<std::string> gradient_names;     // by position in ready order
  std::vector<std::int32_t> gradient_layer;    // by position; -1: unknown
  std::vector<GradientShape> gradient_shapes;  // by position; empty: nothing in it compresses
  std::vector<std::string> layer_names;        // forward order
  /// Preconditioned layers in forward order: what their factors look like, without rows and times.
  /// Empty: none.
  std::vector<Block> blocks;

  /// Which variant a step runs, as the schedule says.
  std::int32_t variant_index_of_step(std::int64_t step) const;
  /// That variant.
  const TaskGraph& variant_of_step(std::int64_t step) const {
    return variants[static_cast<std::size_t>(variant_index_of_step(step))];
  }
  /// -1 if there is no variant of this name.
  std::int32_t variant_index(std::string_view name) const;
  /// Its operation's name; empty if the task has none.
  std::string_view operation_name(const Task& task) const {
    return task.operation < 0
               ? std::string_view()
               : std::string_view(operations[static_cast<std::size_t>(task.operation)].name);
  }
  /// The ranks that have the task.
  const Group& group_of(const Task& task) const {
    return groups[static_cast<std::size_t>(task.group)];
  }
  /// Index of this operation, added if new. The same for a group by its name.
  std::int16_t operation(const Component& operation);
  /// Index of this group, added if its name is new.
  std::int32_t group(const Group& group);

  /// A hash over everything that an executor obeys: tasks, operations, groups, order, edges,
  /// payloads and schedule. Predicted seconds are left out, except those of timers. Ranks compare
  /// it before the first step.
  std::uint64_t hash() const;
};

/// Whether a task encodes or decodes with something that loses more than a cast does.
[[nodiscard]] bool is_coding(const Plan& plan, const Task& task);
/// A task that only waits for its `seconds`.
[[nodiscard]] bool is_timer(const Plan& plan, const Task& task);
/// What inverts a factor: by Cholesky's decomposition, or into eigenvectors and eigenvalues.
[[nodiscard]] Component inverse_operation(bool eigen);
/// Cholesky's, of a factor that is inverted in one call with the next inverse in its ranks' lane.
/// Both have one size. The next inverse has the time of both, and this task takes none.
[[nodiscard]] Component inverse_with_next_operation();
/// A task of that kind.
[[nodiscard]] bool is_inverted_with_next(const Plan& plan, const Task& task);
/// A task that does it by eigenvectors.
[[nodiscard]] bool is_eigendecomposition(const Plan& plan, const Task& task);

/// Throws InternalError when a graph breaks the rules above (order, ranges, schedule, padding).
void validate(const Plan&);
[[nodiscard]] std::string to_json(const Plan&);
/// Throws InputError naming place and JSON path.
[[nodiscard]] Plan plan_from_json(const std::string& text, const std::string& place);
[[nodiscard]] Plan load_plan(const std::filesystem::path&);
void save(const Plan&, const std::filesystem::path&);

}  // namespace linerate::doc
