// Private: records with a span, by when they start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// When a span, a record with a span, or what a pointer points to starts: a projection.
inline constexpr auto start_of = [](const auto& record) -> std::int64_t {
  if constexpr (requires { record->span; })
    return record->span.start_ns;
  else if constexpr (requires { record.span; })
    return record.span.start_ns;
  else
    return record.start_ns;
};

/// Of `all`, which are by start, the last that has begun at `time`. Null: none has.
template <typename T>
const T* last_begun(const std::vector<T>& all, std::int64_t time) {
  const auto after = std::ranges::upper_bound(all, time, {}, start_of);
  return after == all.begin() ? nullptr : &*std::prev(after);
}

/// From the start of the earlier one to the end of the later one.
inline Span hull_of(const Span& a, const Span& b) {
  return {std::min(a.start_ns, b.start_ns), std::max(a.end_ns, b.end_ns)};
}

/// When a rank communicated.
inline SpanSet communication_times(const RankActivity& rank) {
  std::vector<Span> spans;
  for (const Communication& c : rank.communications) spans.push_back(c.span);
  return union_of(std::move(spans));
}

/// Where this number stands among steps, which are by number; -1: there is none.
inline std::int32_t position_of(const std::vector<StepSpan>& steps, std::int64_t number) {
  const auto found = std::ranges::lower_bound(steps, number, {}, &StepSpan::number);
  return found == steps.end() || found->number != number
             ? -1
             : static_cast<std::int32_t>(found - steps.begin());
}

/// The phase at `time`, of spans that are disjoint and by start.
inline StepPhase phase_at(const std::vector<PhaseSpan>& phases, std::int64_t time) {
  const PhaseSpan* phase = last_begun(phases, time);
  return phase == nullptr || phase->span.end_ns <= time ? StepPhase::unknown : phase->phase;
}

}  // namespace linerate::trace
