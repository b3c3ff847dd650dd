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
  KeepDenormals() {
    if (before_ & kFlush) set_control(before_ & ~kFlush);
  }
  ~KeepDenormals() {
    if (before_ & kFlush) set_control(before_);
  }
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;

 private:
#if defined(__SSE__)
  static constexpr std::uint32_t kFlush = 0x8040;  // FTZ and DAZ of MXCSR
  static std::uint32_t control() { return _mm_getcsr(); }
  static void set_control(std::uint32_t bits) { _mm_setcsr(bits); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlush = 1u << 24;  // FZ of FPCR
  static std::uint64_t control() {
    std::uint64_t bits;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
  }
  static void set_control(std::uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
  static constexpr std::uint32_t kFlush = 0;
  static std::uint32_t control() { return 0; }
  static void set_control(std::uint32_t) {}
#endif
  decltype(control()) before_ = control();
};

}  // namespace linerate::compress
