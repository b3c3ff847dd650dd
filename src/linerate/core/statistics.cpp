#include "linerate/core/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/intervals.hpp"

namespace linerate {

/// Type 7: the quantile's position among the n sorted samples is q (n - 1), and between two samples
/// it is interpolated. For example the 0.9 quantile of 1, 2, 3, 4 is at position 2.7, so it is 3.7.
double quantile(std::span<const double> samples, double q) {
  LINERATE_CHECK(!samples.empty(), "quantile of no samples");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double mean(std::span<const double> samples) {
  LINERATE_CHECK(!samples.empty(), "mean of no samples");
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

// All functions but union_of() walk two sorted lists once, with a cursor in each. For example take
// difference_of({[0, 10)}, {[2, 3), [5, 12)}). The span [0, 10) is cut at 2, goes on at 3, and is
// cut at 5. The result is [0, 2) and [3, 5).

SpanSet union_of(std::vector<Span> spans) {
  const auto earlier = [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; };
  if (!std::is_sorted(spans.begin(), spans.end(), earlier))
    std::sort(spans.begin(), spans.end(), earlier);
  std::size_t kept = 0;
  for (const Span& s : spans) {
    if (s.end_ns <= s.start_ns) continue;
    if (kept > 0 && s.start_ns <= spans[kept - 1].end_ns)
      spans[kept - 1].end_ns = std::max(spans[kept - 1].end_ns, s.end_ns);
    else
      spans[kept++] = s;
  }
  spans.resize(kept);
  return spans;
}

SpanSet union_of(const SpanSet& a, const SpanSet& b) {
  std::vector<Span> all(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), all.begin(),
             [](const Span& x, const Span& y) { return x.start_ns < y.start_ns; });
  return union_of(std::move(all));
}

SpanSet intersection_of(const SpanSet& a, const SpanSet& b) {
  SpanSet both;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Span common{std::max(a[i].start_ns, b[j].start_ns), std::min(a[i].end_ns, b[j].end_ns)};
    if (common.length() > 0) both.push_back(common);
    // The span that ends first meets no later span of the other set.
    a[i].end_ns < b[j].end_ns ? ++i : ++j;
  }
  return both;
}

SpanSet difference_of(const SpanSet& a, const SpanSet& b) {
  SpanSet rest;
  std::size_t j = 0;
  for (Span s : a) {
    while (j < b.size() && b[j].end_ns <= s.start_ns) ++j;
    for (std::size_t k = j; k < b.size() && b[k].start_ns < s.end_ns; ++k) {
      if (b[k].start_ns > s.start_ns) rest.push_back({s.start_ns, b[k].start_ns});
      s.start_ns = std::min(b[k].end_ns, s.end_ns);
    }
    if (s.length() > 0) rest.push_back(s);
  }
  return rest;
}

SpanSet clipped(const SpanSet& a, Span window) {
  SpanSet inside;
  auto at = std::lower_bound(a.begin(), a.end(), window.start_ns,
                             [](const Span& s, std::int64_t time) { return s.end_ns <= time; });
  for (; at != a.end() && at->start_ns < window.end_ns; ++at)
    inside.push_back(
        {std::max(at->start_ns, window.start_ns), std::min(at->end_ns, window.end_ns)});
  return inside;
}

std::int64_t length_of(const SpanSet& a) {
  std::int64_t sum = 0;
  for (const Span& s : a) sum += s.length();
  return sum;
}

}  // namespace linerate
