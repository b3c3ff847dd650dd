// Do ranks hold the same tensors, bit for bit?
#pragma once

#include <cstdint>
#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/torch_adapter/options.hpp"

namespace linerate::torch_adapter {

/// A hash of the element type, sizes and bits of each tensor, in this order. -0.0 is not 0.0, and
/// each NaN has its own bits. Names are not part of the hash.
[[nodiscard]] std::uint64_t hash_of(const at::Tensor& tensor);

/// Returns if every rank passes the same names with the same bits. Else throws the same CommError
/// on every rank, with the first tensor that differs from rank 0's: "weights after step 120: ranks
/// differ in "conv1.weight": rank 0 has 0x..., rank 2 has 0x...; ...".
///
/// `what` must be the same everywhere; the list need not be. Sends 8 bytes for each rank, and the
/// hashes of all tensors only if they differ. Collective.
void require_same_tensors(comm::Communicator& communicator, const std::string& what,
                          const NamedTensors& tensors);

}  // namespace linerate::torch_adapter
