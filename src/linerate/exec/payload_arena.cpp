// One memory for all payloads of a rehearsal. A rehearsal's values do not matter, so all payloads
// begin at the same place, and the memory is as large as the largest one. Only an all-to-all needs
// two places, because it must not write to the memory that it reads. Its target is the second one.
#include "linerate/exec/payload_arena.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "linerate/core/index.hpp"
#include "linerate/core/large_pages.hpp"

namespace linerate::exec {
namespace {

constexpr std::int64_t kAlignment = 4096;

std::int64_t rounded_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::shared_ptr<std::byte> zeros(std::int64_t bytes) {
  const auto size = to_index(rounded_up(std::max<std::int64_t>(bytes, 1)));
  constexpr auto alignment = static_cast<std::align_val_t>(kAlignment);
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(::operator new(size, alignment)),
                                    [alignment](std::byte* p) { ::operator delete(p, alignment); });
  prefer_large_pages(memory.get(), size);
  std::memset(memory.get(), 0, size);
  return memory;
}

PayloadArena::PayloadArena(std::shared_ptr<const doc::Plan> plan) : plan_(std::move(plan)) {
  for (const doc::TaskGraph& graph : plan_->variants) {
    std::vector<bool>& second = is_second_.emplace_back(graph.payloads.size(), false);
    for (const doc::Task& task : graph.tasks)
      if (task.kind == doc::TaskKind::all_to_all && task.last != task.first)
        second[to_index(task.last)] = true;
    for (std::size_t p = 0; p < graph.payloads.size(); ++p) {
      std::int64_t& most = second[p] ? second_bytes_ : first_bytes_;
      most = std::max(most, rounded_up(graph.payloads[p].bytes()));
    }
  }
  memory_ = zeros(bytes());
}

comm::Buffer PayloadArena::buffer(const doc::TaskGraph& graph, std::int32_t payload) {
  const auto p = to_index(payload);
  const auto variant = to_index(&graph - plan_->variants.data());
  const doc::Payload& content = graph.payloads[p];
  std::byte* const begin = memory_.get() + (is_second_.at(variant)[p] ? first_bytes_ : 0);
  return {begin, {content.padded}, content.dtype};
}

/// A rehearsal has no data whose size could be told, so the sizes are what the Plan expects.
std::vector<std::int64_t> PayloadArena::counts(const doc::TaskGraph& graph, const doc::Task& task) {
  const std::int64_t ranks = plan_->group_of(task).size_of_part(0, plan_->ranks);
  const doc::Payload& payload = graph.payloads[to_index(task.first)];
  const std::int64_t all =
      task.expected > 0 ? task.expected / size_of(payload.dtype) : payload.padded;
  std::vector<std::int64_t> parts(to_index(ranks), all / ranks);
  std::fill_n(parts.begin(), all % ranks, all / ranks + 1);
  return parts;
}

}  // namespace linerate::exec
