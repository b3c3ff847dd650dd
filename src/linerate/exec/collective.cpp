// A communication task of a Plan becomes one call of a Communicator. Runners and rehearsal come
// here with the payload's memory. The only kind that is more than a call is a gather of unequal
// parts (gather_parts).

#include <fmt/format.h>

#include <cstring>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/exec/runner.hpp"

namespace linerate::exec {
namespace {

using doc::TaskKind;

bool reduces(TaskKind kind) {
  return kind == TaskKind::all_reduce || kind == TaskKind::reduce_scatter;
}

/// `count` elements of an array from `begin` on.
comm::Buffer part_of(const comm::Buffer& all, std::int64_t begin, std::int64_t count) {
  return {static_cast<std::byte*>(all.data) + begin * size_of(all.dtype), {count}, all.dtype};
}

/// Gathers parts of unequal sizes, one after the other. If ranks told each other the sizes
/// (`were_counted`), a rank's part stands at the beginning of its block of the room. Its place was
/// not known when it was written. This moves it to its place first.
///
/// An example with a room of 300 bytes on three ranks. They write 40, 10 and 25 bytes at 0, 100 and
/// 200, each in its own memory. The counts have been exchanged, so rank 1 moves its part to 40 and
/// rank 2 moves its part to 50. The gather fills bytes 0 to 74 on every rank; the rest of the room
/// is not sent.
comm::WorkPtr gather_parts(const comm::Buffer& room, const std::vector<std::int64_t>& counts,
                           bool were_counted, comm::Communicator& group, const std::string& title) {
  const auto rank = to_index(group.rank());
  const std::int64_t block = room.count.value / group.size();
  std::int64_t total = 0, before = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (r == rank) before = total;
    if (counts[r] < 0 || counts[r] > room.count.value - total)
      throw CommError(fmt::format(
          "{}: rank {} has {} elements, expected 0 to {}: what was exchanged is damaged", title, r,
          counts[r], room.count.value - total));
    total += counts[r];
  }
  const comm::Buffer own = part_of(room, before, counts[rank]);
  if (were_counted)
    std::memmove(own.data, part_of(room, group.rank() * block, counts[rank]).data,
                 to_index(counts[rank] * size_of(room.dtype)));
  return group.all_gather_v(own, part_of(room, 0, total), counts, title);
}

}  // namespace

comm::Reduce reduction_of(const doc::Plan& plan, const doc::Task& task) {
  const std::string_view name = plan.operation_name(task);
  if (name == "sum") return comm::Reduce::sum;
  if (name == "max") return comm::Reduce::max;
  if (name == "min") return comm::Reduce::min;
  throw UsageError(
      fmt::format("plan \"{}\": {}: expected the operation sum, max or min, found \"{}\"",
                  plan.strategy, name_of(task.kind), name));
}

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
      return group.reduce_scatter(all, mine, reduction_of(plan, task), title);
    case TaskKind::all_gather:
      return group.all_gather(mine, all, title);
    case TaskKind::all_gather_v:
      return gather_parts(all, payloads.counts(graph, task), counts_of(graph, task.first) >= 0,
                          group, title);
    case TaskKind::all_to_all:
      return group.all_to_all(all, payloads.buffer(graph, task.last), title);
    case TaskKind::broadcast:
      return group.broadcast(all, task.root, title);
    default:
      throw InternalError(title + " is no collective");
  }
}

}  // namespace linerate::exec
