// The operations that traces know, more than what linerate itself runs.
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/doc/block.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"

namespace linerate::trace {

/// What a communication in a trace may be; more than what linerate itself runs.
enum class CommOp : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  send,
  recv,
  send_recv,
  barrier,
  unknown
};
inline constexpr std::array<std::string_view, 13> kCommOpNames = {
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "gather",
    "scatter",    "send",           "recv",       "send-recv",  "barrier",   "unknown"};
[[nodiscard]] constexpr std::string_view name_of(CommOp op) {
  return kCommOpNames[static_cast<std::size_t>(op)];
}
/// busbw = algbw * factor (nccl-tests; gather and scatter as in PARAM); nullopt for barrier and
/// unknown.
[[nodiscard]] std::optional<double> bus_factor(CommOp op, int ranks);
/// No rank can leave before the last one has arrived, so ends agree between ranks. Not so for
/// broadcast (root), reduce (non-root), gather, scatter, send and recv.
[[nodiscard]] constexpr bool synchronises(CommOp op) {
  return op == CommOp::all_reduce || op == CommOp::reduce_scatter || op == CommOp::all_gather ||
         op == CommOp::all_to_all || op == CommOp::barrier;
}
/// Whether it may be an exchange of gradients.
[[nodiscard]] constexpr bool carries_gradients(CommOp op) {
  return op == CommOp::all_reduce || op == CommOp::reduce_scatter;
}

// The parts of a training step that a delay can arise in.

/// What a step was doing.
enum class StepPhase : std::uint8_t {
  data_loading,
  copy,
  forward,
  backward,
  optimizer,
  between_steps,  // a pause: nothing is at work there
  unknown
};
/// How many there are.
inline constexpr std::size_t kPhases = 7;
/// What name_of() gives, by value.
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {
    "data loading", "host-device copy", "forward", "backward",
    "optimizer",    "between steps",    "unknown"};
[[nodiscard]] constexpr std::string_view name_of(StepPhase p) {
  return kPhaseNames[static_cast<std::size_t>(p)];
}

/// A time in which it did one thing.
struct PhaseSpan {
  Span span;                             // when
  StepPhase phase = StepPhase::unknown;  // what
};

/// Fills the pauses in `work`, which may come in any order. The result is disjoint, by start, and
/// reaches from the first to the last of `work`. If spans overlap, the earlier one counts.
///
/// A pause belongs to the phase before it, with three exceptions. After data loading, after a
/// backward pass, and after an optimizer that opens a step (zero_grad), it belongs to the phase
/// that follows. The caller of a backward pass goes on only when the pass is done, so the pause is
/// the caller's. `step_starts` ascend. A pause that contains one is cut there, and the second part
/// is between steps, unless data loading comes next.
///
/// Example. Forward ends at 4 ms, backward is from 5 to 9 ms, the optimizer from 11 to 12 ms. The
/// pause at 4 ms is forward's, the one at 9 ms is the optimizer's.
[[nodiscard]] std::vector<PhaseSpan> with_pauses(std::vector<PhaseSpan> work,
                                                 const std::vector<std::int64_t>& step_starts);

// What explain works on: the activity of each rank of one job, lean, from whatever format it was
// read.
// Thread safety: values.

/// Communication::ready_ns if it is not known.
inline constexpr std::int64_t kNotReady = INT64_MIN;

/// One communication on one rank. -1: unknown.
struct Communication {
  Span span = {};                // on its rank
  CommOp op = CommOp::unknown;   // what it is
  std::int32_t group = -1;       // index into Job::groups
  std::int32_t group_size = -1;  // ranks of the group
  std::int64_t bytes = -1;       // S of core/dtype.hpp
  bool gradients = true;         // false: known to carry flags, buffers or other things
  bool deduced =
      false;  // bytes are not the communication's own record but its launching annotation's input
  std::int64_t sequence = -1;   // per group, equal on all ranks
  std::uint64_t comms_id = 0;   // of this one collective, equal on all ranks; 0: absent
  std::int64_t bus_bytes = -1;  // of an uneven all-to-all: what crosses the network; -1: even
  std::int32_t step = -1;       // position in RankActivity::steps of the launch
  int turn = 0;                 // of its step: GradientRecord::turn
  std::int64_t issued = -1;     // its place in the order in which the host issued them; -1: unknown
  std::optional<DType> dtype = {};  // of what was sent; absent: unknown
  /// When the rank finished the work before it: span starts then, or later because others of this
  /// rank went first. kNotReady: unknown.
  std::int64_t ready_ns = kNotReady;
};

/// A step: a mark of the profiler, or several marks that belong together.
struct StepSpan {
  std::int64_t number = 0;  // as the trace has it; of several marks that of the first
  Span span;                // of the host's mark
  bool updates = false;     // an optimizer ran in it
  /// On the device: what was launched in the step, and the pause before it. The host may be a whole
  /// step ahead; where the device waits for it, its mark parts the pause between two steps. Absent:
  /// unknown.
  std::optional<Span> on_device = {};
  bool cut = false;  // its mark ends before its work on the device does, and no step follows
  /// The recording begins or ends within it: communications are missing that other ranks have.
  /// Example: a profiler that stopped while the device was still at work.
  bool partial = false;
  bool nothing_ran =
      false;  // no operator, no kernel, no communication: what the last step() leaves
  /// That it consists of, by number; empty: it is one.
  std::vector<StepSpan> marks = {};

  /// On the device if that is known, else the host's mark.
  Span time() const { return on_device.value_or(span); }
  /// Whether all of it was recorded.
  bool is_whole() const { return !cut && !partial; }
  /// Of the step that follows it.
  std::int64_t next_number() const { return (marks.empty() ? number : marks.back().number) + 1; }
  /// "5", or "5-8" of several marks.
  std::string label() const;
};

/// A gradient exchange as the host announced it, if no kernel ran (one rank), or next to the
/// kernels.
struct Announced {
  std::int32_t step = -1;           // position in RankActivity::steps
  CommOp op = CommOp::unknown;      // what it is
  std::int64_t bytes = -1;          // S of core/dtype.hpp
  std::optional<DType> dtype = {};  // absent: unknown
};

/// A gradient as one backward pass made it ready, from the trace's own records.
struct GradientRecord {
  std::int64_t elements = 0;  // of the tensor
  DType dtype = DType::f32;   // element type
  std::int64_t ready_ns = 0;  // since the start of backward, never decreasing
  int layer = 0;              // index into the layers of the pass
  std::int64_t rows = 1;      // its first dimension if it has two or more; 0: unknown
  /// A step may have several backward passes that do not add up, each with its own exchange and
  /// update. Example: two models that are trained in turn. Counts from 0.
  int turn = 0;
};
/// An autograd node that made gradients ready, in backward order.
struct LayerRecord {
  /// As Workloads have it ("conv2d", "linear") if its factors are known, else autograd's name of
  /// the node ("Mul").
  std::string kind;
  std::int64_t backward_ns = 0;       // how long its node ran
  std::optional<doc::Block> block{};  // without layer; absent: unknown, or it has no factors
};

/// One backward pass of one rank.
struct BackwardPass {
  std::int32_t step = -1;                 // position in RankActivity::steps
  Span span;                              // from its first node to its last gradient
  std::vector<GradientRecord> gradients;  // ready order
  std::vector<LayerRecord> layers;        // backward order
};

/// What one rank did, from one file.
struct RankActivity {
  int rank = -1;                // -1: the trace does not say
  std::string source;           // the file
  std::int64_t stamp_ns = 0;    // add it to a time here to get the number in the file
  std::vector<StepSpan> steps;  // ascending number
  /// Of all marks of the profiler, by number, also of those that are no steps.
  std::map<std::int64_t, std::int64_t> marks_ns = {};
  std::vector<Span> compute;  // every device computation, any order
  /// By position in `compute`: equal if the same operator or kernel ran, 0 if that is unknown.
  /// Empty: unknown of all.
  std::vector<std::uint64_t> compute_names;
  /// By position in `compute`: equal if kernels were launched with the same grid of the same
  /// blocks, 0 if that is unknown. Empty: unknown of all.
  std::vector<std::uint64_t> launch_sizes;
  std::vector<Span> may_communicate = {};  // of `compute`: by its name, and nothing more is known
  std::vector<Span> copies;                // memcpy and memset
  std::vector<Span> host;                  // operators of the host, any order; empty: unknown
  /// Times in which the host of a device called neither operators nor the device's runtime: it
  /// sleeps, or Python does something else. A call that waits for the device is no pause. By start,
  /// disjoint, within the steps. Absent: unknown.
  std::optional<std::vector<PhaseSpan>> pauses = {};
  /// The host's outermost operators on the thread of the steps, if the host is the device: by
  /// start, disjoint. Empty: unknown.
  std::vector<Span> calls;
  /// Time that the exchange of gradients takes other than communication: scaling, and what a hook
  /// casts, encodes and decodes. The first is on the device, the second its calls on the host.
  std::vector<Span> exchange_work, exchange_calls;
  std::vector<Communication> communications;  // by start
  std::vector<Announced> announced;           // by start
  std::vector<BackwardPass> passes;           // by start; empty: unknown
  /// Disjoint, by start: of a device's work that of its launch, of the time between that of the
  /// host. Empty: unknown.
  std::vector<PhaseSpan> phases;
};

/// Calls `each` with the name and the list of every list of bare spans of a rank.
template <typename Rank, typename Each>
void for_each_spans(Rank& rank, const Each& each) {
  each("compute", rank.compute);
  each("may_communicate", rank.may_communicate);
  each("copies", rank.copies);
  each("host", rank.host);
  each("calls", rank.calls);
  each("exchange_work", rank.exchange_work);
  each("exchange_calls", rank.exchange_calls);
}

/// How many backward passes add up to one exchange of gradients (gradient accumulation).
struct Accumulation {
  int passes = 1;  // to one exchange
  int marks = 1;   // of the profiler to one exchange: it may mark every micro-batch
};

/// T_1: the step of one rank that computes alone.
struct OneRankTime {
  doc::Bounded step_s;  // with its interval
  std::string origin;   // how it was found, for people
};

/// All traces of one job. Times are nanoseconds since origin_ns; clocks of ranks may differ
/// (explanation.hpp).
struct Job {
  std::vector<RankActivity> ranks;     // one a file
  int world_size = -1;                 // -1: unknown
  std::int64_t origin_ns = 0;          // since the epoch; 0: unknown
  std::vector<std::string> groups;     // of ranks that communicate, by name
  bool has_durations = true;           // some Chakra traces have none
  bool computation_unknown = false;    // formats that record communication alone
  bool communication_unknown = false;  // ranks > 1 and not one communication matched: null, never 0
  std::vector<std::string> may_communicate = {};  // names of kernels that sound so
  bool cpu_device = false;   // no accelerator in it: CPU operations stand for the device
  std::string device;        // its type, if a Timeline of linerate's says it: "cuda"
  std::string strategy;      // that its steps exchange by, if a Timeline says it; empty: unknown
  bool runs_graphs = false;  // of the device, whose launches do not say what they send
  bool cycle = false;     // predicted steps that repeat: what lies outside them is of other steps
  bool complete = false;  // what is found in traces when they are joined was found before
  int updates = 1;        // of the parameters in each of its steps: more in whole periods of them
  // Of the backward pass that ends in an exchange, in typical times (periods.hpp).
  std::vector<GradientRecord> gradients;  // in ready order; empty: unknown
  std::vector<LayerRecord> layers;        // of the same pass
  Accumulation accumulation;              // of gradients
  std::vector<doc::Counter> counters;     // that the trace holds
  std::optional<double>
      line_rate_bytes_per_s;                // of the slowest NIC, per direction; absent: unknown
  std::optional<OneRankTime> one_rank;      // absent: unknown, or not looked for
  std::vector<std::string> notes;           // what was missing or refused, said to the user
  std::vector<std::string> sharding_names;  // of libraries that split models, by their annotations
  std::string sharding;  // how the model is split over ranks (periods.hpp); empty: not, or unknown
};

/// Position of the group in Job::groups, added if it is new.
[[nodiscard]] std::int32_t group_index(Job& job, const std::string& group);
/// In place; equal starts keep their order.
void sort_by_start(std::vector<Communication>& communications);
/// Positions of its communications, as the host issued them if that is known of all, else by start.
/// Threads of a back end start them in an order that differs between ranks.
[[nodiscard]] std::vector<std::size_t> in_order_of_issue(const RankActivity& rank);
/// By step of the rank: the time in which its work ran, and its exposed communication. It is the
/// step on the device if that is known, else the time from the host's mark to the next one.
[[nodiscard]] std::vector<Span> windows_of_steps(const RankActivity& rank);

}  // namespace linerate::trace
