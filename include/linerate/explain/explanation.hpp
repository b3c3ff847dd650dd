// How long a rank was busy with what. Definitions: docs/explain.md.
// Thread safety: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Lengths of interval unions on one rank, or their mean over ranks. idle = window - union of
/// all device activity; loading_idle is the part of it in which the host loads data.
struct Busy {
  double window_s = 0;                        // that the others are within
  double compute_s = 0, communication_s = 0;  // of either, overlap or not
  double overlap_s = 0, exposed_s = 0;        // communication with and without computation
  double idle_s = 0;                          // no device activity
  // exposed_s = transfer + wait + unsplit: data moved, waited for a later rank, or one of the two.
  double exposed_transfer_s = 0, exposed_wait_s = 0, exposed_unsplit_s = 0;
  double loading_idle_s = 0;  // of idle_s
  // With ranks missing: exposed transfer is at most this (least duration over repetitions of the
  // same collective).
  double exposed_transfer_most_s = 0;
};

// Who holds a job up, by how much, in how many steps and in which part of them. What happened once
// is kept apart.

/// What holds a job up again and again.
enum class CauseKind : std::uint8_t { late_rank, data_loading, pause };
inline constexpr std::array<std::string_view, 3> kCauseNames = {"late rank", "data loading",
                                                                "pause of every rank"};
[[nodiscard]] constexpr std::string_view name_of(CauseKind k) {
  return kCauseNames[static_cast<std::size_t>(k)];
}

/// What repeats.
struct Cause {
  CauseKind kind = CauseKind::late_rank;          // what it is
  std::optional<int> rank = std::nullopt;         // absent: every rank
  double per_step_s = 0;                          // median over the steps that have it
  int steps_with_it = 0, steps = 0;               // of so many
  std::optional<StepPhase> where = std::nullopt;  // absent: unknown
  /// Shares of the step: gained without it, if everything else takes as long as recorded; and
  /// gained at most (RemedyGains::most_of). Absent: unknown.
  std::optional<double> gain_share = std::nullopt, most_share = std::nullopt;
};

/// One step that took longer than the others do.
struct Irregularity {
  std::int64_t step = 0;                               // as the trace has it
  std::optional<int> rank = std::nullopt;              // absent: every one, or none: communication
  double longer_s = 0;                                 // than the median
  bool communication = false;                          // a collective took longer
  std::optional<StepPhase> where = std::nullopt;       // absent: unknown
  std::optional<std::int64_t> held_up = std::nullopt;  // the step in which the others wait for it
};

// What could be done about a step, and what each would gain.

/// What could be done about a step.
enum class Remedy : std::uint8_t {
  infinitely_fast_network,
  no_stragglers,
  perfect_overlap,
  no_host_gaps,
  no_data_stalls
};
/// How many there are.
inline constexpr std::size_t kRemedies = 5;
/// What name_of() gives, by value.
inline constexpr std::array<std::string_view, kRemedies> kRemedyNames = {
    "infinitely fast network", "no late ranks", "perfect overlap", "no host gaps",
    "data always there"};
/// As the JSON of `explain` calls them, by value.
inline constexpr std::array<std::string_view, kRemedies> kRemedyKeys = {
    "infinitely_fast_network", "no_stragglers", "perfect_overlap", "no_host_gaps",
    "no_data_stalls"};
[[nodiscard]] constexpr std::string_view name_of(Remedy r) {
  return kRemedyNames[static_cast<std::size_t>(r)];
}

/// As a share of the step; absent: unknown.
using RemedyShares = std::array<std::optional<double>, kRemedies>;
/// The share of one remedy.
[[nodiscard]] constexpr const std::optional<double>& share_for(const RemedyShares& c, Remedy r) {
  return c[static_cast<std::size_t>(r)];
}

/// Seconds that a step becomes shorter.
struct StepGain {
  double transfer_s = 0;       // data moves in no time
  double wait_s = 0;           // every rank comes with the first one
  double communication_s = 0;  // both
};

// What the dependencies of a job's own traces say: what each remedy gains at most, who is late and
// where, and what does not repeat.
// Thread safety: values.

/// What a replay of the job without one cause or another says.
struct CriticalPath {
  /// What each remedy gains, replayed, and what it could gain at most; absent if ranks are missing:
  /// then nothing can be replayed. A remedy whose cause is not found gains what the replay says.
  RemedyShares gains, ceilings;
  /// Share of the step: instant data and no late ranks, together.
  std::optional<double> communication_share;
  std::map<std::int64_t, StepGain> by_step;  // empty: unknown
  std::vector<Cause> causes;                 // who and what holds the job up
  std::vector<Irregularity> irregular;       // steps that do not repeat
  std::vector<double> lateness_s;  // by rank as in the job: median over steps; empty: unknown

  /// Steps that only some of the ranks have: files of unequal length.
  std::set<std::int64_t> of_some_ranks;
  /// Cut steps that take longer than the others, on account of that.
  std::set<std::int64_t> cut_longer;
  bool no_common_step = false;  // there are steps, and not one that all ranks have

  /// Steps that do not repeat, that were cut, or that not all ranks have.
  std::set<std::int64_t> left_out() const;
  /// Whether any of the causes is of this kind.
  bool has_cause(CauseKind kind) const;
};

// PyTorch DDP's bucket rule (core/bucket_limits.hpp): whether a trace follows it, and with which
// limits.

/// DDP's rule against what was exchanged.
struct BucketPlan {
  std::vector<std::int64_t> bytes;  // one step's gradient exchanges, in order of issue
  std::int64_t step = -1;           // number of the step that shows it; -1: none
  std::string verdict;              // one sentence
  bool matches_rule = false;        // sizes are those of PyTorch's rule; not asked of Timelines
  /// The strategy that exchanges so, as linerate writes it: "ddp(bucket_cap_mb=10)"; empty: none
  /// that linerate knows, or unknown.
  std::string strategy;
};

/// Compares the gradient exchanges of the last whole step with the rule. Exchanges are kernels, or
/// what the host announced if there are none. Other all-reduces, of metrics or buffers, are left
/// out if the gradients tell them apart. nullopt: no step has exchanges of known size.
[[nodiscard]] std::optional<BucketPlan> check_buckets(const Job& job);

// Where the time of a training step goes, from any traces of one job. Definitions: docs/explain.md.

/// One step, over the ranks.
struct StepRow {
  std::int64_t number = 0;       // as the trace has it
  std::string label = {};        // "5", or "5-8" of several marks
  int marks = 1;                 // of the profiler
  double duration_s = 0;         // of the host-side annotation, mean over ranks
  double length_s = 0;           // of the device's step if that is known, else the same
  bool cut = false;              // on a rank, by the recording's end
  Busy busy;                     // window: from this step's start to the next one's
  std::optional<StepGain> gain;  // absent: unknown
};

/// One collective over its ranks. Absent: unknown.
struct CollectiveRow {
  CommOp op = CommOp::unknown;        // what it is
  std::optional<std::int64_t> bytes;  // S of core/dtype.hpp
  bool bytes_deduced = false;         // from the inputs of the annotation around the launch
  std::optional<int> ranks;           // that took part
  std::int64_t step = -1;             // number; -1 unknown
  double duration_s = 0;  // longest over the ranks that are there; 0 if times are unknown
  /// Mean over these ranks of the part that no computation of theirs covers; absent: unknown.
  std::optional<double> exposed_s;
  std::optional<double> transfer_s;  // least duration over all ranks of a synchronising collective
  std::optional<double> skew_s;      // duration - transfer: how much later the last rank came
  std::optional<int> last_rank;      // that came last
  std::optional<double> algbw_bytes_per_s, busbw_bytes_per_s;  // from transfer_s
  std::optional<double> busbw_at_least_bytes_per_s;  // from duration_s if transfer_s is unknown
};

/// One rank, over its file and its steps.
struct RankRow {
  int rank = -1;                     // -1: the trace does not say
  std::string source;                // its file
  Busy whole;                        // over the whole file
  Busy per_step;                     // mean of its regular steps; all 0: it has none
  std::int64_t clock_offset_ns = 0;  // to add to its times for the first rank's clock
  // Absent if no collective was seen with all its ranks.
  // collectives for which the others waited for this rank
  std::optional<int> times_last = std::nullopt;
  // median over steps: how late it comes
  std::optional<double> delay_per_step_s = std::nullopt;
};

/// Where the time of a job goes. Absent: unknown.
struct Breakdown {
  int world_size = -1;                 // ranks of the job; -1: unknown
  bool ranks_missing = false;          // files of some ranks are not there
  bool of_several_runs = false;        // most collectives end apart on different ranks
  bool has_steps = false;              // steps are marked
  bool has_device = false;             // a device was recorded
  bool communication_unknown = false;  // ranks > 1, and not one communication matched
  bool computation_unknown = false;    // the format records none, or no device was recorded
  bool times_unknown = false;          // the format records none: no time is known
  bool cpu_device = false;             // CPU operations stand for the device
  std::string device;                  // Job::device
  std::vector<RankRow> ranks;          // a row a file
  std::vector<StepRow> steps;          // ascending number
  std::vector<double> marks_s;         // durations of all marks of the profiler, mean over ranks
  int updates = 1;                     // of the parameters in each of `steps`: Job::updates
  /// Mean over ranks, over the whole files, from the digits of the file to the nanosecond.
  Busy whole;
  /// The same from stamps as any JSON reader has them, which other tools print: doubles of
  /// microseconds, 0.25 us apart at epoch times.
  Busy whole_as_doubles;
  /// Over ranks, of all steps that are regular and of what lies between two that follow each other.
  Busy in_steps;
  /// What remedies gain, who is late, what does not repeat.
  CriticalPath path;
  // Mean over ranks, of communications whose own record states the size; absent: none does.
  std::optional<std::int64_t> collective_bytes, gradient_bytes;
  // The same with sizes deduced from the inputs of the annotation around the launch (traces before
  // 2024).
  std::optional<std::int64_t> collective_bytes_deduced, gradient_bytes_deduced;
  std::vector<CollectiveRow> collectives;  // of all ranks
  std::optional<BucketPlan> buckets;       // of the gradients
  std::int64_t clock_residual_ns = 0;  // median disagreement of the clocks that the offsets leave
  /// T_n: median, on the device if that is known, without cut steps; of whole periods their part
  /// for one update, as T_1 is.
  std::optional<double> step_s;
  std::optional<OneRankTime> one_rank;  // T_1
  /// T_1 / T_n; absent: unknown, or above 1, which a note then says.
  std::optional<double> scaling_factor;
  std::optional<double> line_rate_bytes_per_s;  // of the slowest NIC, per direction
  /// Mean of the NIC counters over the line rate.
  std::optional<double> utilisation_step;
  /// Bus bytes over (communication busy x line rate).
  std::optional<double> utilisation_communicating;
  std::vector<std::string>
      may_communicate;               // names of kernels that sound so; they count as compute
  double may_communicate_share = 0;  // of the step, mean over ranks
  std::vector<std::string> notes;    // what was missing or refused, for people
};

/// Measures, matches collectives over ranks, and replays.
[[nodiscard]] Breakdown break_down(const Job& job);

// The verdict: one rule for every Timeline, first match wins (docs/explain.md, "The rule").
// Thread safety: values.

/// What bounds the step.
enum class Finding : std::uint8_t {
  inconclusive,
  input_bound,
  host_bound,
  compute_bound,
  network_bound,
  skew_bound
};
inline constexpr std::array<std::string_view, 6> kFindingNames = {
    "inconclusive", "input-bound", "host-bound", "compute-bound", "network-bound", "skew-bound"};
[[nodiscard]] constexpr std::string_view name_of(Finding f) {
  return kFindingNames[static_cast<std::size_t>(f)];
}

/// Shares of the step at which the verdict changes.
struct Thresholds {
  double data_idle = 0.2;  // above this share of the step idle while data is loaded: input-bound
  double host_idle = 0.5;  // above this share of the step without device activity: host-bound
  double exposed = 0.05;   // below this share of exposed communication: compute-bound
};

/// What bounds the step, why, and what could be gained.
struct Verdict {
  Finding finding = Finding::inconclusive;  // what bounds it
  std::string reason;                       // one sentence with the numbers
  /// (Steps that agree + 1) / (steps + 2); absent when inconclusive.
  std::optional<double> confidence;
  /// Below a confidence of 0.5 the finding is only what the steps lean to.
  bool leans() const { return confidence && *confidence < 0.5; }
  Thresholds thresholds;  // that it was judged by
  // Of the step: the device is idle, it is while data is loaded, communication is exposed.
  double idle_share = 0, loading_share = 0, exposed_share = 0;
  double transfer_share_low = 0, transfer_share_high = 0;  // bounds; equal when all ranks are there
  double wait_share_low = 0, wait_share_high = 0;          // the same of waiting for late ranks
  RemedyShares gains, ceilings;  // as CriticalPath's; of a rank alone from shares of the step
};

/// By the rule of docs/explain.md.
[[nodiscard]] Verdict judge(const Breakdown& breakdown, const Thresholds& thresholds = {});

// What a job's traces say, for whoever prints it: `explain` and the pages of `report` alike.

/// Numbers, and what follows from them.
struct Explanation {
  Breakdown breakdown;  // the numbers
  Verdict verdict;      // what bounds the step
};

/// break_down() and judge() in one. Ceilings of the network need T_1: find_one_rank_time() of the
/// job comes first.
[[nodiscard]] Explanation explain(const Job& job, const Thresholds& thresholds = {});

/// "inconclusive, leaning to host-bound (confidence 0.40)".
[[nodiscard]] std::string finding_text(const Verdict& verdict);
/// A sentence for each cause, in the order of the path's.
[[nodiscard]] std::vector<std::string> cause_texts(const CriticalPath& path);
/// By remedy: its name, what it gains, and at most; "n/a" where unknown.
[[nodiscard]] std::vector<std::vector<std::string>> gain_rows(const Verdict& verdict);

// The answer of `linerate explain` as text.

/// Tables for a terminal, 100 columns wide.
[[nodiscard]] std::string explain_text(const Breakdown& breakdown, const Verdict& verdict);

// The answer of `linerate explain` as JSON.

/// The fixed keys steps_s, compute_busy_s, communication_busy_s, overlap_s,
/// exposed_communication_s, collective_bytes, gradient_bytes, collectives, verdict, confidence, and
/// more. Unknown is null.
[[nodiscard]] std::string explain_json(const Breakdown& breakdown, const Verdict& verdict);

}  // namespace linerate::trace
