#include "linerate/comm/communicator.hpp"

#include <fmt/format.h>

#include <utility>

#include "linerate/comm/schedule/runs.hpp"

namespace linerate::comm {

std::string Communicator::unique_name(const std::string& wanted) {
  const std::lock_guard lock(names_mutex_);
  const int uses = ++names_[wanted];
  return uses == 1 ? wanted : fmt::format("{} ({})", wanted, uses);
}

// For communicators that read no pieces.

WorkPtr Communicator::all_reduce(std::vector<Piece> pieces, Buffer array, std::string name) {
  write_pieces(array, pieces);
  return all_reduce(array, Reduce::sum, std::move(name));
}

WorkPtr Communicator::reduce_scatter(std::vector<Piece> pieces, Buffer array, std::string name) {
  write_pieces(array, pieces);
  const std::int64_t block = array.count.value / size();
  const Buffer own{static_cast<std::byte*>(array.data) + rank() * block * size_of(array.dtype),
                   {block},
                   array.dtype};
  return reduce_scatter(array, own, Reduce::sum, std::move(name));
}

}  // namespace linerate::comm
