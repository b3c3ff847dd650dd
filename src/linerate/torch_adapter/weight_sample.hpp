// Tells whether an optimizer has changed a weight. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_adapter {

/// A hash of four elements of a tensor, which is enough to tell that an optimizer has changed it.
/// The tensor's version counter is not, because LibTorch's optimizers write through .data(), which
/// has a counter of its own.
inline std::uint64_t weight_sample(const at::Tensor& tensor) {
  constexpr std::int64_t kSamples = 4;
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const auto element = to_index(tensor.element_size());
  std::uint64_t hash = kHashStart;
  for (std::int64_t i = 0; i < kSamples && tensor.numel() > 0; ++i) {
    const auto at = to_index((tensor.numel() - 1) * i / (kSamples - 1));
    hash = hash_bytes({bytes + at * element, element}, hash);
  }
  return hash;
}

}  // namespace linerate::torch_adapter
