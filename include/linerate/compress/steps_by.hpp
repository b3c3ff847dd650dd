// What optimizers make of the gradients that they get. Compressors may make that of them already:
// Compressor::momentum().
#pragma once

#include <cstdint>

namespace linerate::compress {

/// What an optimizer's steps follow.
enum class StepsBy : std::uint8_t {
  gradients,  // each by itself: SGD without momentum, Adagrad, LBFGS
  sum,        // a sum of past ones: SGD's momentum
  average,    // an average of past ones, a first moment: Lion, RMSprop with momentum
  adams,      // Adam's first moment over its second
};

}  // namespace linerate::compress
