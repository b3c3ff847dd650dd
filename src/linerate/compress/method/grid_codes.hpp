// The compressors that send values on an even grid a bucket.
#pragma once

#include <memory>

#include "linerate/compress/method/grid_format.hpp"

namespace linerate::compress {

std::unique_ptr<const Compressor> grid_codes(const GridFormat& format);

}  // namespace linerate::compress
