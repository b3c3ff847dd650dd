// Private: what PyTorch's own records say about one collective.
#pragma once

#include <cstdint>
#include <optional>

#include "linerate/core/dtype.hpp"
#include "linerate/trace/job/comm_op.hpp"

namespace linerate::trace {

/// The collective metadata of a kernel or of a record_param_comms operation. -1: absent.
struct CollectiveArgs {
  CommOp op = CommOp::unknown;
  bool ignored = false;  // wait, init: no communication
  std::int64_t in_elements = -1, out_elements = -1;
  int element_bytes = -1;
  std::optional<DType> dtype = {};  // absent: unknown
  int group_size = -1;
  std::int32_t group = -1;  // index into KinetoTrace::groups
  std::int64_t sequence = -1;
  std::uint64_t comms_id = 0;  // 0: absent
  std::int32_t splits = -1;    // index into KinetoTrace::splits

  /// S of core/collective.hpp: elements are per rank, so that the larger side is the total array.
  std::int64_t bytes() const {
    const std::int64_t n = in_elements > out_elements ? in_elements : out_elements;
    // 2^40 elements of 16 bytes: more than any memory, and far from overflow.
    return n < 0 || n > (std::int64_t{1} << 40) || element_bytes < 0 ? -1 : n * element_bytes;
  }
};

/// S of core/collective.hpp if the record states it, else -1. The input of an all-gather or gather
/// is one rank's part, so the total needs the output or the group's size.
std::int64_t bytes_of(const CollectiveArgs& c);

}  // namespace linerate::trace
