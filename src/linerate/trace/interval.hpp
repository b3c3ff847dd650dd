// Sets of half-open intervals [start, end) in nanoseconds: every busy time is the length of a
// union, never a sum.
#pragma once

#include <cstdint>
#include <vector>

namespace linerate::trace {

struct Span {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;

  std::int64_t length() const { return end_ns - start_ns; }
  double seconds() const { return static_cast<double>(length()) * 1e-9; }
};

/// Sorted, disjoint, none empty. Everything below takes and returns such sets, in linear time.
using SpanSet = std::vector<Span>;

/// Any spans, in any order; O(n log n), linear when already sorted.
SpanSet union_of(std::vector<Span> spans);
SpanSet union_of(const SpanSet& a, const SpanSet& b);
SpanSet intersection_of(const SpanSet& a, const SpanSet& b);
SpanSet difference_of(const SpanSet& a, const SpanSet& b);
SpanSet clipped(const SpanSet& a, Span window);
/// Sum of the lengths.
std::int64_t length_of(const SpanSet& a);
inline double seconds_of(const SpanSet& a) { return static_cast<double>(length_of(a)) * 1e-9; }

}  // namespace linerate::trace
