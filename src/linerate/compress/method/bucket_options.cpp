#include "linerate/compress/method/bucket_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "linerate/core/index.hpp"

namespace linerate::compress {

int read_bits(doc::OptionReader& options, std::initializer_list<int> allowed, int otherwise) {
  const std::int64_t bits = options.integer("bits", otherwise);
  if (std::find(allowed.begin(), allowed.end(), bits) == allowed.end())
    options.refuse("bits", fmt::format("one of {}", fmt::join(allowed, ", ")));
  return static_cast<int>(bits);
}

std::size_t read_bucket(doc::OptionReader& options, std::int64_t otherwise) {
  const std::int64_t bucket = options.integer("bucket", otherwise);
  if (bucket < 32 || bucket > 4096 || !std::has_single_bit(static_cast<std::uint64_t>(bucket)))
    options.refuse("bucket", "a power of two, 32 to 4096");
  return to_index(bucket);
}

}  // namespace linerate::compress
