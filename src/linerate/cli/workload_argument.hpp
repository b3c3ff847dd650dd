// -w FILE or -w zoo:NAME with --input, --classes, --batch, --step-time, --step-time-covers,
// --scale: the Workload a verb works on.
#pragma once

#include <optional>
#include <string>

#include "linerate/doc/workload.hpp"

namespace CLI {
class App;
}

namespace linerate::cli {

struct WorkloadArgument {
  std::string reference, input, step_time, scale;
  std::int64_t classes = 0;
  std::int64_t batch = 0;
  std::optional<std::string> covers;  // step or forward_backward; absent: step
};

void add_workload_options(CLI::App& verb, WorkloadArgument& argument);
/// Throws UsageError for what does not go together, InputError for a file that cannot be read.
doc::Workload read_workload(const WorkloadArgument& argument);

}  // namespace linerate::cli
