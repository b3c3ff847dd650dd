// Momentum as methods keep it themselves: m <- beta m + (1 - beta) x.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// The option `key`; refuses what is not from 0 to below 1.
double read_momentum(doc::OptionReader& options, std::string_view key, double otherwise);

/// An exponential moving average of tensors, in f32.
class MovingAverage {
 public:
  explicit MovingAverage(double beta)
      : keep_(static_cast<float>(beta)), take_(static_cast<float>(1 - beta)) {}
  /// out[i] = beta m[i] + (1 - beta) x[i]; `out` may be m.
  void operator()(std::span<const float> m, std::span<const float> x, std::span<float> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = keep_ * m[i] + take_ * x[i];
  }

 private:
  float keep_, take_;
};

}  // namespace linerate::compress
