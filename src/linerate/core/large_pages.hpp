// Memory for large arrays.
#pragma once

#include <cstddef>

namespace linerate {

/// Asks the kernel to back what lies between these addresses with large pages as it is touched for
/// the first time: faulting small ones in can cost as much as the work on them, and other ranks
/// read large ones quicker. A wish: nothing where the system has none, or the range is too short.
void prefer_large_pages(void* begin, std::size_t bytes);

}  // namespace linerate
