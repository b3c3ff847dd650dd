// Scratch memory for chunks in flight. The chunk that was returned last is handed out first,
// because it is still in the cache.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace linerate::comm {

class ChunkPool {
 public:
  explicit ChunkPool(std::size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  std::byte* take() {
    if (free_.empty()) {
      owned_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk_bytes_));
      free_.push_back(owned_.back().get());
    }
    std::byte* chunk = free_.back();
    free_.pop_back();
    return chunk;
  }
  void give_back(std::byte* chunk) { free_.push_back(chunk); }
  std::size_t chunk_bytes() const { return chunk_bytes_; }

 private:
  std::size_t chunk_bytes_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::vector<std::byte*> free_;
};

}  // namespace linerate::comm
