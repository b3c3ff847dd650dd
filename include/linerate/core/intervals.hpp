// Sets of half-open intervals [start, end) of time in nanoseconds. A busy time is the length of a
// union, never a sum: what overlaps counts once.
// Thread safety: values.
#pragma once

#include <cstdint>
#include <vector>

namespace linerate {

struct Span {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;

  std::int64_t length() const { return end_ns - start_ns; }
  double seconds() const { return static_cast<double>(length()) * 1e-9; }

  auto operator<=>(const Span&) const = default;
};

/// Sorted by start, disjoint, none empty, none touching the next: what union_of returns. The
/// functions below expect their sets in this form, and take linear time.
using SpanSet = std::vector<Span>;

/// Any spans, in any order, also empty ones; O(n log n), linear when already sorted.
[[nodiscard]] SpanSet union_of(std::vector<Span> spans);
[[nodiscard]] SpanSet union_of(const SpanSet& a, const SpanSet& b);
[[nodiscard]] SpanSet intersection_of(const SpanSet& a, const SpanSet& b);
/// The part of `a` that no span of `b` covers.
[[nodiscard]] SpanSet difference_of(const SpanSet& a, const SpanSet& b);
/// The part of `a` within `window`; logarithmic in what lies before it.
[[nodiscard]] SpanSet clipped(const SpanSet& a, Span window);
/// Sum of the lengths, in nanoseconds and in seconds.
[[nodiscard]] std::int64_t length_of(const SpanSet& a);
[[nodiscard]] inline double seconds_of(const SpanSet& a) {
  return static_cast<double>(length_of(a)) * 1e-9;
}

}  // namespace linerate
