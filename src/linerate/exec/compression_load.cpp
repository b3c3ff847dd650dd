// Runs encode and decode tasks in a rehearsal, so that they take their time. A rehearsal has no
// gradients and sends no payloads. Gradients are noise. A decode reads payloads of all ranks, so
// after each encode the own payload stands in for those of the others.
//
// Example with three ranks, seen from rank 1: encode writes block 1 of a gathered payload. It is
// copied to blocks 0 and 2, and decode reads three payloads of the right form. With the two-phase
// exchange each owner's block is copied in the same way.
#include "linerate/exec/compression_load.hpp"

#include <algorithm>
#include <cstring>

#include "linerate/compress/noise.hpp"
#include "linerate/core/index.hpp"

namespace linerate::exec {

using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

CompressionLoad::Memory::Memory(const doc::Plan& plan) {
  std::int64_t most = 0;
  for (const TaskGraph& graph : plan.variants)
    for (const doc::Payload& bucket : graph.buckets()) most = std::max(most, bucket.padded);
  noise_ = compress::noise(most, 1);
  decoded_.resize(noise_.size());
}

comm::Buffer CompressionLoad::Memory::buffer(const TaskGraph& graph, std::int32_t payload) {
  const doc::Payload& p = graph.payloads[to_index(payload)];
  if (p.content == doc::Content::gradients)
    return {(decoding_ ? decoded_ : noise_).data(), {p.elements}, p.dtype};
  std::vector<std::byte>& bytes = encoded_[{&graph, payload}];
  bytes.resize(to_index(p.bytes()));
  return {bytes.data(), {p.padded}, p.dtype};
}

CompressionLoad::CompressionLoad(std::shared_ptr<const doc::Plan> plan, int rank, int ranks)
    : plan_(std::move(plan)),
      rank_(rank),
      ranks_(ranks),
      memory_(*plan_),
      compression_(memory_, rank, ranks, 1) {
  compression_.set_plan(plan_);
}

void CompressionLoad::run(const TaskGraph& graph, const Task& task) {
  const bool begins =
      task.kind == TaskKind::encode &&
      compress::CodingStep::of(plan_->operations[to_index(task.operation)]).round == 0;
  if (begins && !encoded_.insert(task.first).second) {  // one more step
    compression_.keep();
    encoded_ = {task.first};
  }
  memory_.set_decoding(task.kind == TaskKind::decode);
  compression_.run(graph, task);
  if (task.kind == TaskKind::encode) stand_in_for_others(graph, task);
}

/// Fills in what the collective after this encode would bring.
void CompressionLoad::stand_in_for_others(const TaskGraph& graph, const Task& task) {
  const auto step = compress::CodingStep::of(plan_->operations[to_index(task.operation)]);
  const std::vector<std::int32_t> payloads = encoded_payloads(graph, task.first);
  const bool has_owners = step.two_phase && payloads.size() >= 3;
  if (has_owners && step.round == 0) return repeat_own_block(graph, payloads[0], payloads[1]);
  if (has_owners) {  // other owners' blocks have the form of those sent to them
    const comm::Buffer sent = memory_.buffer(graph, payloads[0]);
    const comm::Buffer gathered = memory_.buffer(graph, payloads[2]);
    const std::size_t block = to_index(sent.count.value) / to_index(ranks_);
    for (std::size_t r = 0; r < to_index(ranks_); ++r)
      if (r != to_index(rank_))
        std::memcpy(static_cast<std::byte*>(gathered.data) + r * block,
                    static_cast<const std::byte*>(sent.data) + r * block, block);
    return;
  }
  const std::int32_t counts = counts_of(graph, payloads.front());
  const doc::Payload& first = graph.payloads[to_index(payloads.front())];
  if (counts >= 0)
    repeat_own_part(graph, payloads.front(), counts);
  else if (first.dtype == DType::u8)
    repeat_own_block(graph, payloads.front(), payloads.front());
}

void CompressionLoad::repeat_own_block(const TaskGraph& graph, std::int32_t from, std::int32_t to) {
  const comm::Buffer source = memory_.buffer(graph, from), target = memory_.buffer(graph, to);
  const auto ranks = to_index(ranks_), own = to_index(rank_);
  const std::size_t block = to_index(source.count.value) / ranks;
  const auto* block_begin = static_cast<const std::byte*>(source.data) + own * block;
  for (std::size_t r = 0; r < ranks; ++r)
    if (std::byte* there = static_cast<std::byte*>(target.data) + r * block; there != block_begin)
      std::memcpy(there, block_begin, block);
}

/// In a payload whose sizes are told, parts stand one after the other without gaps. So the own part
/// is moved to the front and repeated, and all sizes become its own.
void CompressionLoad::repeat_own_part(const TaskGraph& graph, std::int32_t payload,
                                      std::int32_t counts) {
  const comm::Buffer room = memory_.buffer(graph, payload), sizes = memory_.buffer(graph, counts);
  auto* const size = static_cast<std::int64_t*>(sizes.data);
  auto* const bytes = static_cast<std::byte*>(room.data);
  const auto ranks = to_index(ranks_), own = to_index(rank_);
  const auto part = to_index(size[own]);
  std::memmove(bytes, bytes + own * (to_index(room.count.value) / ranks), part);
  for (std::size_t r = 1; r < ranks; ++r) std::memcpy(bytes + r * part, bytes, part);
  std::fill_n(size, ranks, size[own]);
}

}  // namespace linerate::exec
