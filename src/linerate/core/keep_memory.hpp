// Settings of the C library's allocator for training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace linerate {

/// Keeps freed memory with the process, so that the next step finds its activations' pages in
/// place. By default glibc returns large blocks to the kernel. Then each step of a ResNet-18 (16
/// images of 3x32x32) faults 12,000 to 20,000 pages in again. Blocks above 32 MiB still go back,
/// which is glibc's limit. Process-wide; call it once, before the first step. Returns false if the
/// C library has no such setting.
bool keep_freed_memory();

// Memory for large arrays.

/// Asks the kernel to back this range with large pages when it is touched for the first time.
/// Faulting small pages in can cost as much as the work on them, and other ranks read large pages
/// faster. It is a wish: nothing happens if the system has no large pages, or if the range is too
/// short.
void prefer_large_pages(void* begin, std::size_t bytes);

/// The same for memory that was touched before and is used again and again, as gradients are in an
/// allocator that keeps freed memory. The content of small pages is moved into large ones at once,
/// and once for each large page.
class CollapsedPages {
 public:
  void add(const void* begin, std::size_t bytes);

 private:
  std::unordered_set<std::uintptr_t> asked_;  // by number
};

}  // namespace linerate
