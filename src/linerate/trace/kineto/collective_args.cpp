#include "linerate/trace/kineto/collective_args.hpp"

namespace linerate::trace {

std::int64_t bytes_of(const CollectiveArgs& c) {
  if ((c.op == CommOp::all_gather || c.op == CommOp::gather) && c.out_elements < 0) {
    if (c.group_size < 1 || c.bytes() < 0 || c.bytes() > (INT64_MAX / 4) / c.group_size) return -1;
    return c.bytes() * c.group_size;
  }
  return c.bytes();
}

}  // namespace linerate::trace
