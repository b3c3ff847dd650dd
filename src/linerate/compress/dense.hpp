// A tensor as it is, in place of a codec if compression does not pay.
#pragma once

#include <memory>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// One gathered round of 4 bytes an element: v in f32. Leaves no residual.
std::unique_ptr<Codec> dense_codec(const Shape& shape);

/// The compressor's codec. Throws UsageError if it makes none.
std::unique_ptr<Codec> made_codec(const Compressor& compressor, const Shape& shape);

}  // namespace linerate::compress
