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

struct StepRow {
  std::int64_t number = 0;
  double duration_s = 0;         // of the host-side annotation, mean over ranks
  double length_s = 0;           // of the device's step if that is known, else the same
  bool cut = false;              // on a rank, by the recording's end
  Busy busy;                     // window: from this step's start to the next one's
  std::optional<StepGain> gain;  // absent: unknown
};

/// One collective over its ranks. Absent: unknown.
struct CollectiveRow {
  CommOp op = CommOp::unknown;
  std::optional<std::int64_t> bytes;
  bool bytes_deduced = false;
  std::optional<int> ranks;
  std::int64_t step = -1;  // number; -1 unknown
  double duration_s = 0;   // longest over the ranks that are there; 0 if times are unknown
  /// Mean over these ranks of the part that no computation of theirs covers; absent: unknown.
  std::optional<double> exposed_s;
  std::optional<double> transfer_s;  // least duration over all ranks of a synchronising collective
  std::optional<double> skew_s;      // duration - transfer: how much later the last rank came
  std::optional<int> last_rank;
  std::optional<double> algbw_bytes_per_s, busbw_bytes_per_s;  // from transfer_s
  std::optional<double> busbw_at_least_bytes_per_s;  // from duration_s if transfer_s is unknown
};

struct RankRow {
  int rank = -1;
  std::string source;
  Busy whole;     // over the whole file
  Busy per_step;  // mean of its regular steps; all 0: it has none
  std::int64_t clock_offset_ns = 0;
  // Absent if no collective was seen with all its ranks.
  // collectives for which the others waited for this rank
  std::optional<int> times_last = std::nullopt;
  // median over steps: how late it comes
  std::optional<double> delay_per_step_s = std::nullopt;
};

struct Breakdown {
  int world_size = -1;
  bool ranks_missing = false;
  bool has_steps = false, has_device = false;
  bool communication_unknown = false;
  bool computation_unknown = false;  // the format records none, or no device was recorded
  bool times_unknown = false;        // the format records none: no time is known
  bool cpu_device = false;
  std::vector<RankRow> ranks;
  std::vector<StepRow> steps;
  /// Mean over ranks, over the whole files, from the digits of the file to the nanosecond.
  Busy whole;
  /// The same from stamps as any JSON reader has them, which other tools print: doubles of
  /// microseconds, 0.25 us apart at epoch times.
  Busy whole_as_doubles;
  /// Over ranks, of all steps that are regular and of what lies between two that follow each other.
  Busy in_steps;
  CriticalPath path;
  // Mean over ranks, of communications whose own record states the size; absent: none does.
  std::optional<std::int64_t> collective_bytes, gradient_bytes;
  // The same with sizes deduced from the inputs of the annotation around the launch (traces before
  // 2024).
  std::optional<std::int64_t> collective_bytes_deduced, gradient_bytes_deduced;
  std::vector<CollectiveRow> collectives;
  std::optional<BucketPlan> buckets;
  std::int64_t clock_residual_ns = 0;
  std::optional<double> step_s;  // T_n: median, on the device if that is known, without cut steps
  std::optional<OneRankTime> one_rank;
  std::optional<double> scaling_factor;  // T_1 / T_n
  std::optional<double> line_rate_bytes_per_s;
  /// Mean of the NIC counters over the line rate.
  std::optional<double> utilisation_step;
  /// Bus bytes over (communication busy x line rate).
  std::optional<double> utilisation_communicating;
  std::vector<std::string> notes;
};

Breakdown break_down(const Job& job);

}  // namespace linerate::trace
