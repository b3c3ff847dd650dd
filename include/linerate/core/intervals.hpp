// Sets of half-open intervals [start, end) of time in nanoseconds. A busy time is the length of a
// union, never a sum: what overlaps counts once.
// Thread safety: values.
#pragma once

#include <cstdint>
#include <vector>

namespace linerate {

/// From start_ns to end_ns, without the end.
struct Span {
  std::int64_t start_ns = 0;  // of any clock
  std::int64_t end_ns = 0;    // of the same

  /// Nanoseconds.
  std::int64_t length() const { return end_ns - start_ns; }
  /// The length in seconds.
  double seconds() const { return static_cast<double>(length()) * 1e-9; }

  auto operator<=>(const Span&) const = default;
};

/// Sorted by start, disjoint, none empty, none touching the next: what union_of returns. The
/// functions below expect their sets in this form, and take linear time.
using SpanSet = std::vector<Span>;

/// Any spans, in any order, also empty ones; O(n log n), linear when already sorted.
[[nodiscard]] SpanSet union_of(std::vector<Span> spans);
/// Times in either of two sets.
[[nodiscard]] SpanSet union_of(const SpanSet& a, const SpanSet& b);
/// Times in both.
[[nodiscard]] SpanSet intersection_of(const SpanSet& a, const SpanSet& b);
/// The part of `a` that no span of `b` covers.
[[nodiscard]] SpanSet difference_of(const SpanSet& a, const SpanSet& b);
/// The part of `a` within `window`; logarithmic in what lies before it.
[[nodiscard]] SpanSet clipped(const SpanSet& a, Span window);
/// Sum of the lengths, in nanoseconds and in seconds.
[[nodiscard]] std::int64_t length_of(const SpanSet& a);
/// The same in seconds.
[[nodiscard]] inline double seconds_of(const SpanSet& a) {
  return static_cast<double>(length_of(a)) * 1e-9;
}

}  // namespace linerate
