// A Plan as tables for a terminal.
#pragma once

#include <functional>
#include <string>

#include "linerate/doc/plan.hpp"

namespace linerate::report {

/// Seconds that a task is predicted to take; 0: unknown or nothing.
using SecondsOf = std::function<double(const doc::Task&)>;

/// Head, schedule, and for each variant its payloads, its tasks and its edges into the next step.
/// Without `seconds_of`: Task::seconds, which collectives do not have.
std::string text_of(const doc::Plan& plan, const SecondsOf& seconds_of = {});

/// "step 0: first-step, then: steady".
std::string schedule_of(const doc::Plan& plan);

}  // namespace linerate::report
