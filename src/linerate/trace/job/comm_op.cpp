#include "linerate/trace/job/comm_op.hpp"

namespace linerate::trace {

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
