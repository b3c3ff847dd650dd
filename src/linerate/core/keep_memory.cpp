#include "linerate/core/keep_memory.hpp"

#include <linux/mman.h>  // MADV_COLLAPSE: Debian 12's C library does not name it
#include <sys/mman.h>

#include <climits>  // says which C library this is
#include <utility>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace linerate {

bool keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLargestFromHeap = 32 << 20;  // HEAP_MAX_SIZE / 2; mallopt refuses more
  return mallopt(M_MMAP_THRESHOLD, kLargestFromHeap) == 1 &&
         mallopt(M_TRIM_THRESHOLD, INT_MAX) == 1 && mallopt(M_TOP_PAD, 64 << 20) == 1;
#else
  return false;
#endif
}

namespace {

constexpr std::uintptr_t kLarge = 2u << 20;

/// The large pages that lie whole within the range, by number: [first, second).
std::pair<std::uintptr_t, std::uintptr_t> whole_pages(const void* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return {(address + kLarge - 1) / kLarge, (address + bytes) / kLarge};
}

}  // namespace

void prefer_large_pages(void* begin, std::size_t bytes) {
  const auto [from, to] = whole_pages(begin, bytes);
  if (to > from)
    (void)::madvise(reinterpret_cast<void*>(from * kLarge), (to - from) * kLarge, MADV_HUGEPAGE);
}

void CollapsedPages::add(const void* begin, std::size_t bytes) {
#if defined(MADV_COLLAPSE)
  const auto [from, to] = whole_pages(begin, bytes);
  for (std::uintptr_t page = from; page < to; ++page)
    if (asked_.insert(page).second)
      (void)::madvise(reinterpret_cast<void*>(page * kLarge), kLarge, MADV_COLLAPSE);
#endif
}

}  // namespace linerate
