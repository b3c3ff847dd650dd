// Chooses the instruction sets for which the kernels here are compiled. Results are folded over a
// fixed number of lanes, so the size of a vector must be known when compiling. Where vectors are
// scalable (SVE, RVV), a fixed set of the same processor serves. x86 without AVX2 (before 2013)
// takes the portable set, because each set costs a fifth of the time of compiling. A file of
// kernels includes this first, with HWY_TARGET_INCLUDE as its own name.
#pragma once

#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_SSE4)

// clang-format off
#include <hwy/foreach_target.h>  // includes HWY_TARGET_INCLUDE once per target
#include <hwy/highway.h>
// clang-format on

/// Defines a function of kernels.hpp. It calls the kernel of the same name and parameters that was
/// compiled for this processor.
#define LINERATE_KERNEL(Result, name, parameters, ...) \
  HWY_EXPORT(name);                                    \
  Result name parameters { return HWY_DYNAMIC_DISPATCH(name)(__VA_ARGS__); }
