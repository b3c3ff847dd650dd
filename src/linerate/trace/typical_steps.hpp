// Private: the steps of a job's ranks, each without its exposed communication.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/bounded.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Medians over the steps of a rank, typical of ranks (job/typical_step.hpp), in seconds for one
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

}  // namespace linerate::trace
