// Where the time of a training step goes, from any traces of one job. Definitions: docs/explain.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/trace/explain/bucket_rule.hpp"
#include "linerate/trace/explain/busy.hpp"
#include "linerate/trace/explain/critical_path.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

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
  std::optional<std::int64_t> bytes;  // S of core/collective.hpp
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

}  // namespace linerate::trace
