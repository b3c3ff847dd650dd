// A communication task as a call of a Communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

/// Throws UsageError unless it is sum, max or min.
comm::Reduce reduction_of(const doc::Plan& plan, const doc::Task& task);

/// Throws UsageError unless a reduction is sum, max or min.
void check_collective(const doc::Plan& plan, const doc::Task& task);

/// Submits the collective of a task among the ranks of `group`. All-to-all goes from the task's
/// first payload into its last; other kinds work in place on the first. Throws InternalError if the
/// payload's size is not the Plan's.
comm::WorkPtr submit_collective(const doc::Plan& plan, const doc::TaskGraph& graph,
                                const doc::Task& task, comm::Communicator& group,
                                Payloads& payloads, const std::string& title);

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
