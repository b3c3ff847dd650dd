// Private: which c10d operator issued a communication of Gloo or MPI, whose own annotation names
// neither it nor its group. Several threads of the back end run what was issued, and in another
// order on each rank: the order of issue is the one that ranks share.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// A communication that ran on the host, with what its issuing operator says of it.
struct HostCommunication {
  const CommMark* mark = nullptr;
  CollectiveArgs args;  // the operation is the operator's: a reduce-scatter runs as an all-reduce
  std::int64_t issued = -1;     // place of the operator among all; -1: none found
  std::int64_t called_ns = -1;  // when it began
};

/// By start. An operator takes the first annotation after it that has its operation and size.
std::vector<HostCommunication> host_communications(const KinetoTrace& trace);

}  // namespace linerate::trace
