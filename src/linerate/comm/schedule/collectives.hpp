// Chooses the algorithm of a collective by its size. Collectives bound by latency exchange whole
// buffers; large ones stream chunks.
#pragma once

#include <cstdint>
#include <span>

#include "linerate/comm/channel.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

/// Byte-level forms of the operations of Communicator: same shapes, already validated. They return
/// when the result is in place and no message of this rank's is in flight any more.
void all_reduce(Channel& channel, ChunkPool& pool, Buffer buffer, Reduce op);
void all_reduce(Channel& channel, ChunkPool& pool, std::span<const Piece> pieces, Buffer array);
void reduce_scatter(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output, Reduce op);
void reduce_scatter(Channel& channel, ChunkPool& pool, std::span<const Piece> pieces, Buffer array);
void all_gather(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                std::span<const std::int64_t> counts);
void all_to_all(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output);
void broadcast(Channel& channel, ChunkPool& pool, Buffer buffer, int root);
void barrier(Channel& channel);

}  // namespace linerate::comm
