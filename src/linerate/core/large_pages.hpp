// Memory for large arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace linerate {

/// Asks the kernel to back what lies between these addresses with large pages as it is touched for
/// the first time: faulting small ones in can cost as much as the work on them, and other ranks
/// read large ones quicker. A wish: does nothing if the system has none, or the range is too short.
void prefer_large_pages(void* begin, std::size_t bytes);

/// The same for memory that was touched before and comes back again and again, as gradients do in
/// an allocator that keeps freed memory: what small pages hold is moved into large ones, at once,
/// and once for each of them.
class CollapsedPages {
 public:
  void add(const void* begin, std::size_t bytes);

 private:
  std::unordered_set<std::uintptr_t> asked_;  // by number
};

}  // namespace linerate
