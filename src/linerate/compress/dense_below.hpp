// The option dense_below=, which every compressor has: smaller tensors travel dense.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "linerate/compress/codec.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

inline constexpr std::string_view kDenseBelow = "dense_below";

/// A compressor that was made from these options, by its option dense_below=. The caller refuses
/// what was not read. Null stays null.
std::unique_ptr<const Compressor> with_dense_below(std::unique_ptr<const Compressor> compressor,
                                                   doc::OptionReader& options);

}  // namespace linerate::compress
