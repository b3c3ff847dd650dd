// A value and how far it may be off.
// Thread safety: values.
#pragma once

#include <optional>

namespace linerate::doc {

/// A value with its 90 % interval; absent ends: its error is unknown, not zero.
struct Bounded {
  double value = 0;                                               // the best estimate
  std::optional<double> low = std::nullopt, high = std::nullopt;  // ends of the interval

  /// Whether both ends are known.
  bool has_interval() const { return low && high; }
  /// The low end, or the value if it has none.
  double low_or_value() const { return low.value_or(value); }
  /// The high end, or the value if it has none.
  double high_or_value() const { return high.value_or(value); }
};

}  // namespace linerate::doc
