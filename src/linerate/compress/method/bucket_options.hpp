// The options that quantisers share.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// bits=8, one of `allowed`. Throws UsageError.
int read_bits(doc::OptionReader& options, std::initializer_list<int> allowed, int otherwise = 8);
/// bucket=128: a power of two, 32 to 4096 elements. Throws UsageError.
std::size_t read_bucket(doc::OptionReader& options, std::int64_t otherwise);

}  // namespace linerate::compress
