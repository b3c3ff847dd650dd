// Private: PyTorch host execution traces (ExecutionTraceObserver, schemas 1.0.1 to 1.1.1):
// operations and sizes, no durations. Joined to the Kineto trace of the same rank they give it the
// sizes it lacks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// One record_param_comms node.
struct HostCollective {
  std::uint64_t record_function = 0;  // rf_id; 0: absent
  CollectiveArgs args;                // group is not set
  GroupRecord group;                  // empty name: absent
};

struct HostTrace {
  std::string source;
  int rank = -1, world_size = -1;
  std::vector<HostCollective> collectives;  // in the order of the file; "wait" and "init" included
  std::vector<std::string> notes;
};

/// Throws InputError naming what is missing.
HostTrace read_host_trace(PaddedText text, const std::string& name);
/// Alone: a list of collectives without times, one rank a file.
Job job_of(const std::vector<HostTrace>& traces);
/// Gives the operations of `trace` that state no size the host's record, by rf_id = "Record
/// function id" or "External id", at one constant distance if the ids are shifted (pytorch#122833).
/// Notes what it did; if no ids agree nothing is joined.
void join_host(const HostTrace& host, KinetoTrace& trace);

}  // namespace linerate::trace
