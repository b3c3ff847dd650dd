// Opened files as one job, for tests and fuzzing; load.hpp is for everybody else.
#pragma once

#include <span>

#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

Job read_job(std::span<InputFile> inputs);
inline Job read_job(InputFile& input) { return read_job({&input, 1}); }

}  // namespace linerate::trace
