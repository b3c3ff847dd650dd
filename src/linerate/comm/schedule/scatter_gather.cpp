// Reduce-scatter and all-gather: the two halves of the ring.
#include <cstring>
#include <vector>

#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/comm/schedule/run_blocks.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

BlockJob job_of(const Channel& channel, const std::byte* input, Buffer output, Reduce op) {
  const auto bytes = to_index(output.count.value * size_of(output.dtype));
  BlockJob job{.blocks = {}, .reduces = true, .gathers = false, .dtype = output.dtype, .op = op};
  for (int g = 0; g < channel.size(); ++g)
    job.blocks.push_back({input + to_index(g) * bytes, nullptr, bytes});
  job.blocks[to_index(channel.rank())].output = static_cast<std::byte*>(output.data);
  return job;
}

}  // namespace

void reduce_scatter(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                    Reduce op) {
  const auto bytes = to_index(output.count.value * size_of(output.dtype));
  if (channel.size() == 1) return copy(output.data, input.data, bytes);
  if (bytes == 0) return;
  run_blocks(channel, pool, job_of(channel, static_cast<const std::byte*>(input.data), output, op));
}

void reduce_scatter(Channel& channel, ChunkPool& pool, std::span<const Piece> pieces,
                    Buffer array) {
  const std::int64_t block = array.count.value / channel.size();
  auto* base = static_cast<std::byte*>(array.data);
  const Buffer own{base + channel.rank() * block * size_of(array.dtype), {block}, array.dtype};
  if (channel.size() == 1 || !channel.reads_peers()) {
    write_pieces(array, pieces);
    return reduce_scatter(channel, pool, array, own, Reduce::sum);
  }
  BlockJob job = job_of(channel, base, own, Reduce::sum);
  add_runs(job, pieces);
  run_blocks(channel, pool, job);
}

void all_gather(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                std::span<const std::int64_t> counts) {
  const auto element = to_index(size_of(output.dtype));
  BlockJob job{
      .blocks = {}, .reduces = false, .gathers = true, .dtype = output.dtype, .op = Reduce::sum};
  auto* base = static_cast<std::byte*>(output.data);
  for (const std::int64_t count : counts) {
    const std::size_t bytes = to_index(count) * element;
    job.blocks.push_back({nullptr, base, bytes});
    base += bytes;
  }
  const ArrayBlock& own = job.blocks[to_index(channel.rank())];
  copy(own.output, input.data, own.bytes);
  run_blocks(channel, pool, job);
}

}  // namespace linerate::comm
