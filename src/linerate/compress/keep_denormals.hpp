// Keeps numbers below 2^-126 as IEEE 754 has them, whatever the thread is set to. A program that
// flushes them to zero (torch.set_flush_denormal) must send the same bytes as one that does not.
// Else ranks with different settings would decode different means from the same payloads.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace linerate::compress {

/// While it lives, this thread neither flushes denormal results to zero nor reads them as zero.
/// CodedTensor, which calls codecs, holds one whenever numbers are computed.
class KeepDenormals {
 public:
#if defined(__SSE__)
  KeepDenormals() : before_(_mm_getcsr()) {
    if (before_ & kFlush) _mm_setcsr(before_ & ~kFlush);
  }
  ~KeepDenormals() {
    if (before_ & kFlush) _mm_setcsr(before_);
  }
#elif defined(__aarch64__)
  KeepDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (before_ & kFlush) asm volatile("msr fpcr, %0" : : "r"(before_ & ~kFlush));
  }
  ~KeepDenormals() {
    if (before_ & kFlush) asm volatile("msr fpcr, %0" : : "r"(before_));
  }
#else
  KeepDenormals() { static_cast<void>(before_); }
#endif
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;

 private:
#if defined(__SSE__)
  static constexpr std::uint32_t kFlush = 0x8040;  // FTZ and DAZ of MXCSR
  std::uint32_t before_;
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlush = 1u << 24;  // FZ of FPCR
  std::uint64_t before_;
#else
  std::uint64_t before_ = 0;
#endif
};

}  // namespace linerate::compress
