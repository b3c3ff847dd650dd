#include "linerate/torch_adapter/state_broadcast.hpp"

#include <cstring>

namespace linerate::torch_adapter {

void broadcast_memory(comm::Communicator& communicator, const MemoryPieces& pieces,
                      const std::string& name) {
  std::vector<comm::WorkPtr> works;
  for (const std::span<std::byte> piece : pieces)
    works.push_back(communicator.broadcast(
        {piece.data(), {static_cast<std::int64_t>(piece.size())}, DType::u8}, 0, name));
  for (const comm::WorkPtr& work : works) work->wait();
}

PackedBroadcast::PackedBroadcast(MemoryPieces pieces) : pieces_(std::move(pieces)) {
  std::size_t bytes = 0;
  for (const std::span<std::byte> piece : pieces_) bytes += piece.size();
  packed_.resize(bytes);
}

void PackedBroadcast::submit(comm::Communicator& communicator) {
  if (packed_.empty()) return;
  std::byte* to = packed_.data();
  for (const std::span<std::byte> piece : pieces_) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  work_ = communicator.broadcast(
      {packed_.data(), {static_cast<std::int64_t>(packed_.size())}, DType::u8}, 0, "buffers");
}

void PackedBroadcast::finish() {
  if (!work_) return;
  work_->wait();
  work_.reset();
  const std::byte* from = packed_.data();
  for (const std::span<std::byte> piece : pieces_) {
    if (!piece.empty()) std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
  }
}

}  // namespace linerate::torch_adapter
