// Private: traces that hold a whole job or one rank's records without device kernels.
#pragma once

#include <string>
#include <string_view>

#include "linerate/trace/input.hpp"
#include "linerate/trace/job.hpp"

namespace linerate::trace {

/// Horovod timeline (rank 0 writes it for all): negotiation ticks give the arrival skew, activities
/// the transfer. A fused batch writes the same activity for every member tensor: equal intervals
/// are one collective, bytes summed.
Job read_horovod(PaddedText text, const std::string& name);
/// PyTorch host execution trace, schemas 1.0.1 to 1.1.1: operations and sizes, no durations.
Job read_host_trace(PaddedText text, const std::string& name);
/// Chakra execution trace (protobuf, schema 0.0.4): a hand-written wire reader.
Job read_chakra(std::string_view bytes, const std::string& name);
/// Its JSON form for feeders: {"workload_graph": [...]}.
Job read_chakra_json(PaddedText text, const std::string& name);
/// A varint length followed by a GlobalMetadata with a version string.
bool is_chakra(std::string_view head);

}  // namespace linerate::trace
