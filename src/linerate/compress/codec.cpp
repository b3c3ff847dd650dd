#include "linerate/compress/codec.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::compress {

int Phases::of_step(std::int64_t step) const {
  int phase = 0;
  for (const Phase& warm : warm_up) {
    if (step < warm.steps) return phase;
    step -= warm.steps;
    ++phase;
  }
  return phase + static_cast<int>(step % static_cast<std::int64_t>(cycle.size()));
}

const std::string& Phases::name(int phase) const {
  const auto p = static_cast<std::size_t>(phase);
  return p < warm_up.size() ? warm_up[p].name : cycle[p - warm_up.size()].name;
}

std::vector<Round> Compressor::rounds(const Shape& shape, int) const { return rounds(shape); }

void Codec::load(std::span<const std::byte> saved) {
  if (!saved.empty())
    throw InputError("checkpoint",
                     fmt::format("{} bytes of a compressor's state, expected none", saved.size()));
}

std::int64_t kept_bytes(const Compressor& compressor, const Shape& shape) {
  if (compressor.rounds(shape).empty()) return 0;
  const std::int64_t residual =
      keeps_residual(compressor) ? shape.elements * size_of(DType::f32) : 0;
  return 2 * (residual + compressor.remembered_bytes(shape));
}

}  // namespace linerate::compress
