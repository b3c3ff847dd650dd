// -w FILE or -w zoo:NAME with --input, --classes, --batch, --step-time, --step-time-covers,
// --scale, --device-speed: the Workload a verb works on, and the speed of the Cluster's devices.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/models/workload_source.hpp"
#include "linerate/verbs/caller.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct WorkloadArgument {
  models::WorkloadSource source;
  std::string step_time, scale, device_speed;
  std::optional<std::string> covers;  // step or forward_backward; absent: step
};

void add_workload_options(CLI::App& verb, WorkloadArgument& argument);
/// Throws UsageError for what does not go together, InputError for a file that cannot be read.
doc::Workload read_workload(const WorkloadArgument& argument, const Caller& caller = {});
/// The Cluster, its devices as fast as --device-speed says.
std::shared_ptr<const doc::Cluster> at_device_speed(std::shared_ptr<const doc::Cluster> cluster,
                                                    const WorkloadArgument& argument);

}  // namespace linerate::verbs
