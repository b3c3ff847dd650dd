// Opened files as one job, for tests and fuzzing; load.hpp is for everybody else.
#pragma once

#include <span>

#include "linerate/trace/input/input.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

Job read_job(std::span<Input> inputs);
inline Job read_job(Input& input) { return read_job({&input, 1}); }

}  // namespace linerate::trace
