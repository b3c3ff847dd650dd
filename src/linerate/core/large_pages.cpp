#include "linerate/core/large_pages.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace linerate {

void prefer_large_pages(void* begin, std::size_t bytes) {
  constexpr std::uintptr_t kLarge = 2u << 20;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t from = (address + kLarge - 1) / kLarge * kLarge;
  const std::uintptr_t to = (address + bytes) / kLarge * kLarge;
  if (to > from) (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
}

}  // namespace linerate
