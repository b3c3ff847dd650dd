// A Plan without the last parts of its steps, as if they took no time.
#pragma once

#include "linerate/doc/plan.hpp"
#include "linerate/doc/step_parts.hpp"

namespace linerate::plan {

/// What a task is there for.
doc::StepPart part_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task);

/// The Plan with the tasks of parts up to `last` alone. A task that waited for a lost task waits
/// for what that one waited for. Payloads and order stay, so nothing is fused or placed anew. The
/// result can be simulated but not executed.
doc::Plan up_to(const doc::Plan& plan, doc::StepPart last);

}  // namespace linerate::plan
