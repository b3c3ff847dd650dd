// Private: which c10d operator issued a communication of Gloo or MPI. The annotation of the
// communication names neither the operator nor the group.
//
// Ranks issue in the same order, but several threads of a back end run what was issued, in another
// order on each rank. Ranks 0, 1 and 2 issue buckets A, B and C. On rank 0 they start as A, B, C,
// on rank 1 as B, A, C, on rank 2 as A, C, B. Matched by start, B on rank 1 would be A on rank 0.
// Matched by the order of issue they agree.
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

/// Communications by start. Operators are visited in order, and each takes the first annotation
/// after it that is free and has its operation and size. Among buckets of equal size a swap is
/// possible. It changes neither sizes nor the order of issue.
std::vector<HostCommunication> host_communications(const KinetoTrace& trace);

}  // namespace linerate::trace
