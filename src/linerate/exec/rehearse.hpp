// Rehearsal: a Plan with real communication and emulated computation, on the network at hand and
// without the devices.
#pragma once

#include <functional>
#include <memory>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

struct RehearsalOptions {
  int steps = 20;   // recorded
  int warm_up = 3;  // steps of the Plan's cycle before them, after its own warm-up
  /// Runs casts and compressors instead of waiting for their stated time.
  bool real_codecs = false;
  double* sent_bytes = nullptr;               // gets the mean bytes that this rank sent in a step
  std::function<void(double)> progress = {};  // called with the share of steps done
};

/// Runs the Plan's steps one after the other. Computation is waiting. An observed task starts when
/// its predecessors and the task before it in the compute lane are done. It ends `seconds` later,
/// whenever this thread woke up; nothing slows it. Executed operations wait in their lanes in the
/// same way. Collectives are real, over memory as large as the largest payload (PayloadArena).
///
/// The Timeline of all ranks on rank 0, in the shape of a predicted one, mode "rehearsed"; empty
/// elsewhere. A step lasts from the end of computation in the step before it to its own. Throws as
/// Runner::set_plan, on every rank, for plans that differ or are for another number of ranks.
/// Throws UsageError for a plan that cannot be rehearsed so. Throws what collectives throw.
/// Collective.
doc::Timeline rehearse(comm::Communicator& communicator, std::shared_ptr<const doc::Plan> plan,
                       const RehearsalOptions& options = {});

/// T_1: how long the computation of a step takes on one rank, as the mean over the Plan's cycle.
double computation_s(const doc::Plan& plan);

// Runs the Plan's casts for what they cost, over memory of the right size that nobody reads.

class CastOperation : public Operation {
 public:
  /// Throws UsageError if the plan's codec is no cast, and for types that cannot be cast.
  explicit CastOperation(const doc::Plan& plan);

  void run(const doc::TaskGraph& graph, const doc::Task& task) override;

 private:
  const doc::Plan& plan_;
  std::shared_ptr<std::byte> dense_, encoded_;  // memory of the largest bucket, f32 and cast
};

}  // namespace linerate::exec
