// A trace becomes a Workload: what one rank computes in a step, for the planner and the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/prediction.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// The Workload has gradients in ready order with their times, and layers by autograd node. Without
/// records of gradients (record_shapes was off) every gradient exchange of the step becomes one
/// gradient, and `notes` says so. Times are those of a rank that computes alone
/// (to_workload.hpp); they are recorded ones if `alone` is there. Throws InputError if the trace
/// has neither gradients nor exchanges, or if the model is split over ranks.
doc::Workload workload_of(Job job, const std::string& name, std::vector<std::string>& notes,
                          const std::optional<Job>& alone = std::nullopt);

// Private: the steps of a job's ranks, each without its exposed communication.

/// Medians over the steps of a rank, typical of ranks (job/periods.hpp), in seconds for one
/// update of the parameters. Steps that the recording's end cut count only if there are no others.
struct TypicalSteps {
  std::optional<doc::Bounded> step_s;  // absent: no step is marked
  std::optional<double> forward_s;  // before the backward pass that ends in an exchange; of no use
                                    // if a step has several updates
  double host_s = 0;                // operators of the host
  std::size_t steps = 0;            // of all ranks together
  std::vector<std::string>
      notes;  // slow ranks and steps, which are left out, and pauses, which are not
};

TypicalSteps typical_steps(const Job& job);

// Private: T_1, the step of one rank that computes alone, from the traces of a job.

/// A job as one of its ranks would run it alone.
struct AloneSteps {
  /// Its gradients and layers have the times of a rank that computes alone; clocks of its ranks no
  /// longer compare.
  Job job;
  /// Of one update of the parameters. It is the median over the steps of a rank, typical of ranks
  /// (job/periods.hpp). If steps repeat every few, it is over whole periods (job/periods.hpp).
  /// Absent: no step is marked.
  std::optional<OneRankTime> time;
  /// Before the backward pass that ends in an exchange. Absent: no such pass is in the trace.
  std::optional<double> forward_s = {};
  std::vector<std::string> notes = {};  // what was left out of T_1, and what is in it
};

/// The steps of a rank alone. A job whose ranks exchange nothing is taken as recorded. From any
/// other job the parts that several ranks and a profiler add are taken off (one_rank_step.cpp). The
/// interval is what their errors, and that of the median, may amount to together.
AloneSteps alone_steps(const Job& job);

/// `alone` is a recording of one rank of `job` without exchange. Throws InputError naming it if it
/// is none.
AloneSteps alone_steps(const Job& job, const Job& alone);

/// Sets Job::one_rank, from `alone` if it is there.
void find_one_rank_time(Job& job, const std::optional<Job>& alone);

// Private: what a job sends besides its gradients.

/// The place of a communication, or why no Workload holds it.
enum class SentFor : std::uint8_t {
  gradients,  // or unknown whether it carries any
  forward,    // the forward pass waits for it
  backward,   // the backward pass waits for it
  update,     // of parameters, after the update, which waits for it
  elsewhere   // not of gradients
};

/// By rank and position in its communications. A collective belongs to a pass if the computation
/// waits for most of its kind, as for SyncBatchNorm's gathers and sums. Gathers and broadcasts
/// after an update are of parameters if they have half as many bytes as the gradients, as ZeRO's
/// do. A recording without exchanges of gradients has neither. A Timeline of linerate's own sends
/// what its strategy says, so nothing else is looked for.
std::vector<std::vector<SentFor>> purposes_of(const Job& job);

/// Whether a backward pass waits for some of it.
bool backward_waits(const std::vector<std::vector<SentFor>>& purposes);

/// The other collectives for a Workload of `job`. `alone` is the same job as one rank would run it,
/// and `times` its Workload so far: places are counted in its passes. A collective at no regular
/// interval of steps is left out. `notes` get numbers and exposed times of those kept and of those
/// left out.
std::vector<doc::OtherCollective> other_collectives_of(
    const Job& job, const std::vector<std::vector<SentFor>>& purposes, const Job& alone,
    const doc::Workload& times, std::vector<std::string>& notes);

}  // namespace linerate::trace
