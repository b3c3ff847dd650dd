#include "linerate/compress/codec.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::compress {

void Codec::load(std::span<const std::byte> saved) {
  if (!saved.empty())
    throw InputError("checkpoint",
                     fmt::format("{} bytes of a compressor's state, expected none", saved.size()));
}

}  // namespace linerate::compress
