#include "linerate/trace/job/comm_op.hpp"

namespace linerate::trace {

/// The factor turns a size into the bytes that the busiest link must carry. In a ring all-reduce
/// each of three ranks sends two thirds of the buffer to reduce it and two thirds to spread it:
/// 4/3. A reduce-scatter or an all-gather is one half of that. A broadcast or a send carries the
/// buffer once.
std::optional<double> bus_factor(CommOp op, int ranks) {
  if (ranks < 1) return std::nullopt;
  const double n = ranks;
  switch (op) {
    case CommOp::all_reduce:
      return 2 * (n - 1) / n;
    case CommOp::reduce_scatter:
    case CommOp::all_gather:
    case CommOp::all_to_all:
    case CommOp::gather:
    case CommOp::scatter:
      return (n - 1) / n;
    case CommOp::barrier:
    case CommOp::unknown:
      return std::nullopt;
    default:
      return 1;
  }
}

}  // namespace linerate::trace
