#include "linerate/compress/codec.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::compress {

void Codec::load(std::span<const std::byte> saved) {
  if (!saved.empty())
    throw InputError("checkpoint",
                     fmt::format("{} bytes of a compressor's state, expected none", saved.size()));
}

std::int64_t kept_bytes(const Compressor& compressor, const Shape& shape) {
  if (compressor.rounds(shape).empty()) return 0;
  const Residual kind = compressor.residual();
  const bool has_residual = kind == Residual::needed || kind == Residual::optional;
  const std::int64_t residual = has_residual ? shape.elements * size_of(DType::f32) : 0;
  return 2 * (residual + compressor.remembered_bytes(shape));
}

}  // namespace linerate::compress
