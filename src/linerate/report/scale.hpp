// From data to positions, and the round numbers at which an axis is marked.
#pragma once

#include <vector>

namespace linerate::report {

/// Maps [low, high] to [from, to], linearly or by logarithm. A range of one value maps to the
/// middle.
class Scale {
 public:
  static Scale linear(double low, double high, double from, double to) {
    return {false, low, high, from, to};
  }
  /// low > 0.
  static Scale logarithmic(double low, double high, double from, double to) {
    return {true, low, high, from, to};
  }
  double operator()(double value) const;

 private:
  Scale(bool log, double low, double high, double from, double to);
  bool log_;
  double low_, high_, from_, to_;
};

/// Multiples of 1, 2 or 5 x 10^k inside [low, high], at most `most` of them.
std::vector<double> linear_ticks(double low, double high, int most);
/// 1, 2 and 5 x 10^k inside [low, high], or the powers of ten alone where those are more than
/// `most`. Ranges that hold fewer than two of them are marked as linear ones.
std::vector<double> log_ticks(double low, double high, int most);

}  // namespace linerate::report
