// The kinds of optimizers, by their use of past gradients. A compressor may do that part itself
// already (Compressor::momentum()), and then the optimizer must be of a kind that fits.
#pragma once

#include <cstdint>

namespace linerate::compress {

/// The quantity that an optimizer's steps follow.
enum class StepsBy : std::uint8_t {
  gradients,  // each by itself: SGD without momentum, Adagrad, LBFGS
  sum,        // a sum of past ones: SGD's momentum
  average,    // an average of past ones, a first moment: Lion, RMSprop with momentum
  adams,      // Adam's first moment over its second
};

}  // namespace linerate::compress
