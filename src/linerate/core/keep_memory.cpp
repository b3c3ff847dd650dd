#include "linerate/core/keep_memory.hpp"

#include <climits>  // says which C library this is

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

}  // namespace linerate
