#include "linerate/comm/communicator.hpp"

#include <utility>

#include "linerate/comm/schedule/runs.hpp"

namespace linerate::comm {

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
  return reduce_scatter({array.data, array.count, array.dtype}, own, Reduce::sum, std::move(name));
}

}  // namespace linerate::comm
