// Rehearsal: a Plan with real communication and emulated computation, on the network at hand and
// without the devices.
#pragma once

#include <functional>
#include <memory>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"

namespace linerate::exec {

struct RehearsalOptions {
  int steps = 20;   // recorded
  int warm_up = 3;  // steps of the Plan's cycle in front of them, beside its own warm-up
  /// Casts and compressors run, in place of waiting as long as they are said to take.
  bool real_codecs = false;
  double* sent_bytes = nullptr;  // gets what this rank sent in a step, in the mean of all
  std::function<void(double)> progress = {};  // called with the share of steps done
};

/// Runs the Plan's steps one after the other. Computation is waiting: an observed task starts when
/// what it waits for, and the one before it in the compute lane, is done, and is over `seconds`
/// later, whenever this thread woke up; nothing slows it. Executed operations wait alike in their
/// lanes. Collectives are real, over memory as large as the largest payload (PayloadArena).
///
/// The Timeline of all ranks on rank 0, in the shape of a predicted one, mode "rehearsed"; empty
/// elsewhere. A step lasts from the end of computation in the step before it to its own. Throws as
/// Runner::set_plan, on every rank, for plans that differ or are for another number of ranks;
/// UsageError for a plan that cannot be rehearsed so; what collectives throw. Collective.
doc::Timeline rehearse(comm::Communicator& communicator, std::shared_ptr<const doc::Plan> plan,
                       const RehearsalOptions& options = {});

/// T_1: how long the Plan's computation of a step takes on one rank, in the mean of its cycle.
double computation_s(const doc::Plan& plan);

}  // namespace linerate::exec
