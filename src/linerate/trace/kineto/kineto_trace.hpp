// Private: what PyTorch's own records say about one collective.
#pragma once

#include <algorithm>
#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/core/index.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// The collective metadata of a kernel or of a record_param_comms operation. -1: absent.
struct CollectiveArgs {
  CommOp op = CommOp::unknown;
  bool ignored = false;  // wait, init: no communication
  std::int64_t in_elements = -1, out_elements = -1;
  std::optional<ElementType> type = {};  // absent: unknown
  int group_size = -1;
  std::int32_t group = -1;  // index into KinetoTrace::groups
  std::int64_t sequence = -1;
  std::uint64_t comms_id = 0;  // 0: absent
  std::int32_t splits = -1;    // index into KinetoTrace::splits

  std::optional<DType> dtype() const { return type ? std::optional(type->dtype) : std::nullopt; }
  /// S of core/dtype.hpp: elements are per rank, so that the larger side is the total array.
  std::int64_t bytes() const {
    const std::int64_t n = in_elements > out_elements ? in_elements : out_elements;
    // 2^40 elements of 16 bytes: more than any memory, and far from overflow.
    return n < 0 || n > (std::int64_t{1} << 40) || !type ? -1 : n * type->bytes;
  }
};

/// S of core/dtype.hpp if the record states it, else -1. The input of an all-gather or gather
/// is one rank's part, so the total needs the output or the group's size.
std::int64_t bytes_of(const CollectiveArgs& c);

// Private: the names of a PyTorch trace's events and what each says.

/// What the name of an event says, decided once per distinct name.
enum class NameKind : std::uint8_t {
  plain,
  communication_kernel,
  step,
  comm_mark,
  param_comms,
  c10d,
  accumulate_grad,
  evaluate,
  ddp,
  loading,    // the data loader's turn
  optimizer,  // an optimizer's step or zero_grad
};

/// An operator of backward passes whose tensors have the shapes of a layer's input, output and
/// weight.
enum class LayerOperator : std::uint8_t {
  none,
  convolution,  // (gradient of the output, input, weight)
  product,      // (matrix, matrix): the weight's gradient, or the input's
  embedding,    // (gradient of the output, indices)
  batch_norm,   // (gradient of the output, input, weight), or the first two in the other order
  layer_norm,   // (gradient of the output, input, its dimensions, mean, 1 / deviation, weight)
  checkpoint    // (gradient of the output): of a part that runs anew, with a backward pass inside
};

struct NameInfo {
  std::string text;        // as in the file, escapes included
  std::uint64_t hash = 0;  // of the text, equal in all files
  NameKind kind = NameKind::plain;
  CommOp op = CommOp::unknown;  // communication kernels and marks
  LayerOperator layer = LayerOperator::none;
  bool host_backend =
      false;  // comm_mark: gloo and other CPU back ends, whose mark is the communication
  bool suspicious = false;  // sounds like communication, and no library of such names is known
  std::int64_t step = -1;   // ProfilerStep#n
  std::optional<StepPhase> phase = {};  // that the name states
};

/// Distinct names with their meaning. A trace has far fewer names than events, so events keep an
/// index, and each name is examined once.
class NameTable {
 public:
  std::int32_t intern(std::string_view raw);
  const NameInfo& operator[](std::int32_t i) const { return names_[to_index(i)]; }
  std::size_t size() const { return names_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>{}(name);
    }
  };
  std::vector<NameInfo> names_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> index_;
};

// Private: "Input Dims" and "Input type", the arguments of an operator that describe its tensors.

/// "Input Dims": the elements of all tensors in it, [[64, 3, 7, 7], []] -> 9408; innermost lists
/// are shapes. -1 when there is no shape, or when it has more than 2^40 elements. An empty list is
/// the shape of a scalar, or stands for an argument that is no tensor: it does not count.
std::int64_t elements_of_dims(std::string_view list);
/// "Input Dims" of one argument, and its type is that of a tensor's elements: [[]], ["float"].
bool is_one_scalar(std::string_view dims, std::string_view types);
/// The same of the first and of the second argument alone, whose lists of tensors may hold scalars;
/// -1 if there is no shape.
std::pair<std::int64_t, std::int64_t> elements_of_first_two(std::string_view list);
using TensorShape = std::vector<std::int64_t>;
/// The shapes of the first `most` arguments; that of a scalar, of a list of tensors and of what is
/// no tensor is empty. Empty if a number is none.
std::vector<TensorShape> shapes_of_first(std::string_view list, std::size_t most);
/// -1 beyond 2^40; 1 for a scalar.
std::int64_t elements_of(const TensorShape& shape);
/// "Input type": the first that is an element type, ["TensorList", "float"] -> 4 bytes, f32.
std::optional<ElementType> first_element_type(std::string_view list);

// Private: one rank's PyTorch/Kineto Chrome trace, as read.

/// How an uneven all-to-all cuts its input and output, by rank of the group; in elements or in
/// rows.
struct SplitSizes {
  std::vector<std::int64_t> in, out;
  bool cut = false;  // PyTorch writes 30 items at most
};

/// An event of the file. It is a kernel or a copy, a call of the device's runtime (a launch, or
/// what waits for the device), or an operator or annotation of the host. Times are nanoseconds as
/// written; baseTimeNanoseconds is not added yet.
struct KinetoEvent {
  Span span;
  std::int64_t tid = 0;                            // thread of the host, or stream of the device
  std::uint64_t correlation = 0, external_id = 0;  // 0: absent
  std::uint64_t launch_size = 0;                   // hash of a kernel's grid and blocks; 0: unknown
  std::int32_t name = -1;                          // in KinetoTrace::names; of a copy none is kept
  std::int32_t args = -1;                          // index into KinetoTrace::args
  std::int32_t shapes = -1;                        // index into KinetoTrace::shapes
  std::int32_t launch = -1;                        // of a device event: in KinetoTrace::launches
  DType dtype = DType::f32;                        // of the first tensor input that has one
  bool copy = false;
  bool to_device = false;  // a copy from the host
};

/// How the pass over the JSON of a file ended.
enum class ScanEnd : std::uint8_t { whole, no_events, out_of_memory, damaged };

/// One rank's trace. Events refer to names, args, splits and shapes by index, because many events
/// share them, and a trace has millions of events.
struct KinetoTrace {
  std::string source;
  int rank = -1, world_size = -1;
  std::string backend;
  std::int64_t base_ns = 0;
  NameTable names;
  std::vector<ConfiguredGroup> configured;
  std::vector<ResolvedGroup> groups;
  std::vector<KinetoEvent> device;  // kernels and copies
  std::vector<CollectiveArgs> args;
  std::vector<SplitSizes> splits;
  std::vector<std::vector<TensorShape>> shapes;  // of the first inputs of an operator
  std::vector<KinetoEvent> marks;  // record_param_comms, and annotations such as nccl:all_reduce
  std::vector<KinetoEvent> operators;  // c10d::*, which issue communications
  std::vector<KinetoEvent> launches;   // calls of the device's runtime
  std::vector<KinetoEvent> ops;        // operators and annotations of the host, on their threads
  std::vector<StepSpan> steps;         // of the host, ascending number
  std::int64_t step_thread = 0;        // which marks the steps
  std::vector<StepSpan> device_steps;  // gpu_user_annotation of the same names
  std::map<std::string, int> unknown_collectives;  // name, records of it
  std::size_t events = 0;
  std::size_t own = 0;           // complete events of a category that PyTorch writes
  std::size_t other_device = 0;  // records of accelerators not understood here
  std::size_t without_duration = 0, bad_time = 0, absurd = 0;
  std::vector<std::string> notes;
  ScanEnd end = ScanEnd::whole;
  const char* reason = "";    // the parser's own words
  std::size_t strangers = 0;  // elements of the list that are no events

  /// Null: it has none.
  const CollectiveArgs* args_of(const KinetoEvent& e) const {
    return e.args < 0 ? nullptr : &args[to_index(e.args)];
  }
  /// What started a device event. Null: the trace does not hold it.
  const KinetoEvent* launch_of(const KinetoEvent& e) const {
    return e.launch < 0 ? nullptr : &launches[to_index(e.launch)];
  }
};

inline bool is_communication_kernel(const KinetoTrace& trace, const KinetoEvent& e) {
  return !e.copy && trace.names[e.name].kind == NameKind::communication_kernel;
}

using SpansByThread = std::map<std::int64_t, std::vector<Span>>;
/// Spans of those of the host's operators and annotations whose name is `wanted`: by thread, and
/// sorted.
template <typename Wanted>
SpansByThread spans_by_thread(const KinetoTrace& trace, const Wanted& wanted) {
  SpansByThread spans;
  for (const KinetoEvent& op : trace.ops)
    if (wanted(trace.names[op.name])) spans[op.tid].push_back(op.span);
  for (auto& [tid, all] : spans) std::ranges::sort(all);
  return spans;
}

// Private: a file becomes a trace (tokens.cpp, kineto_reader.cpp), and a trace a rank of a job
// (kineto_job.cpp).

/// The trace of a file with keys in any order, or with a bare array of events. Events keep the
/// order of the file. Threads of the host whose "tid" is a word get negative numbers.
KinetoTrace scan_kineto(const PaddedText& text, const std::string& source,
                        const Progress& progress);

/// A KinetoTrace. Throws InputError naming file and place. Mends what real files have broken
/// (input_file.hpp) and notes it.
std::any read_kineto(PaddedText text, const std::string& name, const Progress& progress);

/// Adds the rank to the job. Kernels are joined with their collective metadata (launch_join.cpp),
/// and steps are assigned by launch. Notes say what stays unknown. Times become absolute;
/// Job::origin_ns is not touched.
void add_rank(const KinetoTrace& trace, Job& job);

// Private: when the device finished what the host asked for.

/// Answers when the work that the host had launched by some moment was done on the device. Only
/// computation counts, and neither communication nor copies.
///
/// Example. Kernels launched at 1, 2 and 3 ms end at 4, 9 and 7 ms, as they run on two streams.
/// What was launched by 2.5 ms is done at 9 ms, and what was launched by 3 ms is done at 9 ms, too.
/// So a running maximum of the ends, by launch, answers with one binary search.
class DeviceClock {
 public:
  explicit DeviceClock(const KinetoTrace& trace);

  /// When everything launched up to a moment of the host was done on the device; nullopt if nothing
  /// was.
  std::optional<std::int64_t> work_done_by(std::int64_t host_ns) const;
  /// The same, and not before the host's own time.
  std::int64_t done_by(std::int64_t host_ns) const;

 private:
  std::vector<Span> done_;  // launch, running maximum of the kernels' ends
};

// Private: what the launch on the host says about the communication kernel that it started.

/// Where a communication kernel comes from.
struct KernelOrigin {
  std::optional<CollectiveArgs> args = {};  // absent: no metadata
  bool deduced = false;  // only the annotation around the launch knows, no metadata of its own
  CommOp marked = CommOp::unknown;  // the operation that this annotation names
};

/// Of each communication kernel, in the order of KinetoTrace::device: its own arguments, then
/// External id, then the record_param_comms operations that the launch moves, then the annotation
/// around it.
std::vector<KernelOrigin> origins_of_kernels(const KinetoTrace& trace);

// Private: which c10d operator issued a communication of Gloo or MPI. The annotation of the
// communication names neither the operator nor the group.
//
// Ranks issue in the same order, but several threads of a back end run what was issued, in another
// order on each rank. Ranks 0, 1 and 2 issue buckets A, B and C. On rank 0 they start as A, B, C,
// on rank 1 as B, A, C, on rank 2 as A, C, B. Matched by start, B on rank 1 would be A on rank 0.
// Matched by the order of issue they agree.

/// A communication that ran on the host, with what its issuing operator says of it.
struct HostCommunication {
  const KinetoEvent* mark = nullptr;
  CollectiveArgs args;  // the operation is the operator's: a reduce-scatter runs as an all-reduce
  std::int64_t issued = -1;     // place of the operator among all; -1: none found
  std::int64_t called_ns = -1;  // when it began
};

/// Communications by start. Operators are visited in order, and each takes the first annotation
/// after it that is free and has its operation and size. Among buckets of equal size a swap is
/// possible. It changes neither sizes nor the order of issue.
std::vector<HostCommunication> host_communications(const KinetoTrace& trace);

// Private: a job whose device is the CPU: which of the host's records are computation.

/// Is there nothing of an accelerator in it: no back end, launch or annotation of one?
bool runs_on_cpu(const KinetoTrace& trace);

/// When host back ends communicated, by thread: disjoint, by start.
SpansByThread host_communication_times(const KinetoTrace& trace);
/// Whether an operator of the host ran within one of these spans of its thread. Operators of a host
/// back end's own threads are part of its communication: Gloo copies gathered tensors to where they
/// belong and adds sparse ones up there.
bool is_within(const SpansByThread& spans, const KinetoEvent& op);

/// Those that lie in no other one of the same thread, by start.
std::vector<const KinetoEvent*> outermost_of(std::vector<const KinetoEvent*> ops);

/// Outermost operators on the thread of the steps, nodes of the autograd engine among them: by
/// start, disjoint.
std::vector<Span> host_calls(const KinetoTrace& trace);

/// Fills RankActivity::compute and compute_names with the operators of the host that compute.
/// Annotations around operators do not count, and neither do operators inside a communication or
/// those of the data loader. An operator that communicates inside does not count itself; the
/// operators in it do.
void add_host_computation(const KinetoTrace& trace, RankActivity& rank);

// Private: how much of an all-to-all with uneven splits crosses the network.

/// For one rank's trace, which must outlive it. Counts what stayed unknown.
///
/// Example. Rank 1 of three sends rows in parts of 2, 4 and 6 and receives parts of 1, 4 and 3. Its
/// own part of 4 stays on the rank. So it sends 8 rows and receives 4, and the link carries 8.
class UnevenAllToAll {
 public:
  explicit UnevenAllToAll(const KinetoTrace& trace) : trace_(trace) {}

  /// The larger of what the rank sends and receives in bytes, its own part left out. -1: the splits
  /// are even, or unknown.
  std::int64_t bus_bytes_of(const CollectiveArgs& args);
  /// One note for each reason why splits stayed unknown.
  std::vector<std::string> notes() const;

 private:
  std::optional<std::size_t> own_position(const CollectiveArgs& args) const;

  const KinetoTrace& trace_;
  std::size_t cut_ = 0, unplaced_ = 0;
};

// Private: which communications may carry gradients, and what turn of a step they belong to, by
// when the host asked for them.

/// Gradients exist from a backward pass to the optimizer's step. A communication that is asked for
/// between that step and the next backward pass carries something else. Examples are averaged
/// parameters, a loss, statistics of norm layers.
///
/// Example. Backward runs from 1 to 5 ms, the optimizer from 6 to 7 ms, and backward again from 10
/// ms. A call at 4 or 6.5 ms may carry gradients, a call at 8 ms may not. If both passes are of one
/// step, a call at 11 ms belongs to its turn 1.
class GradientCalls {
 public:
  explicit GradientCalls(const KinetoTrace& trace);

  /// True if the trace has no backward pass or no optimizer.
  bool may_carry(std::int64_t called_ns) const;
  /// The turn of the step that a call belongs to, from 0. A turn ends with an update that has a
  /// backward pass before it and another one between it and the call.
  int turn_of(std::int64_t step_began_ns, std::int64_t called_ns) const;

 private:
  bool backward_in(Span window) const;

  std::vector<std::int64_t> backward_;  // begins of autograd's nodes, ascending
  std::vector<Span> optimizer_;         // steps of it: disjoint, by start
  std::vector<Span> updates_;           // of these, without a backward pass in or around them
};

// Private: the backward passes of one rank, from a trace's own records.

/// Gradients, layers and times of the backward passes that the host ran within each step, by start.
/// Times are as in the trace. A step has several passes if it accumulates: passes over the same
/// gradients with forward operators between them. Otherwise all of it is one pass, also if an
/// update parts it into turns (GradientRecord::turn). Steps without gradients, or without their
/// shapes, have no pass.
std::vector<BackwardPass> backward_passes(const KinetoTrace& trace, const GradientCalls& calls);

}  // namespace linerate::trace
