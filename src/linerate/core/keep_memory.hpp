// Settings of the C library's allocator for training.
#pragma once

namespace linerate {

/// Keeps freed memory with the process, so that the next step finds its activations' pages in
/// place. By default glibc returns large blocks to the kernel. Then each step of a ResNet-18 (16
/// images of 3x32x32) faults 12,000 to 20,000 pages in again. Blocks above 32 MiB still go back,
/// which is glibc's limit. Process-wide; call it once, before the first step. Returns false if the
/// C library has no such setting.
bool keep_freed_memory();

}  // namespace linerate
