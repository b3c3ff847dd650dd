#include "linerate/exec/collective.hpp"

#include <fmt/format.h>

#include <numeric>

#include "linerate/core/error.hpp"

namespace linerate::exec {
namespace {

using doc::TaskKind;

comm::Reduce reduction_of(const doc::Plan& plan, const doc::Task& task) {
  const std::string_view name = plan.operation_name(task);
  if (name == "sum") return comm::Reduce::sum;
  if (name == "max") return comm::Reduce::max;
  if (name == "min") return comm::Reduce::min;
  throw UsageError(
      fmt::format("plan \"{}\": {}: expected the operation sum, max or min, found \"{}\"",
                  plan.strategy, name_of(task.kind), name));
}

bool reduces(TaskKind kind) {
  return kind == TaskKind::all_reduce || kind == TaskKind::reduce_scatter;
}

/// `count` elements of an array from `begin` on.
comm::Buffer part_of(const comm::Buffer& all, std::int64_t begin, std::int64_t count) {
  return {static_cast<std::byte*>(all.data) + begin * size_of(all.dtype), {count}, all.dtype};
}
comm::ConstBuffer constant(const comm::Buffer& b) { return {b.data, b.count, b.dtype}; }

}  // namespace

void check_collective(const doc::Plan& plan, const doc::Task& task) {
  if (reduces(task.kind)) static_cast<void>(reduction_of(plan, task));
}

comm::WorkPtr submit_collective(const doc::Plan& plan, const doc::TaskGraph& graph,
                                const doc::Task& task, comm::Communicator& group,
                                Payloads& payloads, const std::string& title) {
  const comm::Buffer all = payloads.buffer(graph, task.first);
  const std::int64_t bytes = all.count.value * size_of(all.dtype);
  LINERATE_CHECK(
      task.bound ? bytes <= task.bytes : bytes == task.bytes,
      fmt::format("{}: the Plan says {} bytes, the payload has {}", title, task.bytes, bytes));
  const std::int64_t block = all.count.value / group.size();
  const comm::Buffer mine = part_of(all, group.rank() * block, block);
  if (reduces(task.kind) && reduction_of(plan, task) == comm::Reduce::sum) {
    std::vector<comm::Piece> pieces = payloads.pieces(graph, task.first);
    if (!pieces.empty() && task.kind == TaskKind::all_reduce)
      return group.all_reduce(std::move(pieces), all, title);
    if (!pieces.empty()) return group.reduce_scatter(std::move(pieces), all, title);
  }
  switch (task.kind) {
    case TaskKind::all_reduce:
      return group.all_reduce(all, reduction_of(plan, task), title);
    case TaskKind::reduce_scatter:
      return group.reduce_scatter(constant(all), mine, reduction_of(plan, task), title);
    case TaskKind::all_gather:
      return group.all_gather(constant(mine), all, title);
    case TaskKind::all_gather_v: {
      const std::vector<std::int64_t> counts = payloads.counts(graph, task);
      const auto rank = static_cast<std::size_t>(group.rank());
      const std::int64_t before =
          std::accumulate(counts.begin(), counts.begin() + group.rank(), std::int64_t{0});
      return group.all_gather_v(constant(part_of(all, before, counts[rank])), all, counts, title);
    }
    case TaskKind::all_to_all:
      return group.all_to_all(constant(all), payloads.buffer(graph, task.last), title);
    case TaskKind::broadcast:
      return group.broadcast(all, task.root, title);
    default:
      throw InternalError(title + " is no collective");
  }
}

}  // namespace linerate::exec
