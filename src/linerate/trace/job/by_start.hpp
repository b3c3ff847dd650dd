// Private: records with a span, by when they start.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Adds a note that begins with the name of a file.
template <typename... Values>
void add_note(std::vector<std::string>& notes, const std::string& file,
              fmt::format_string<Values...> text, Values&&... values) {
  notes.push_back(file + ": " + fmt::format(text, std::forward<Values>(values)...));
}

/// What `of` (a function or a member) says of each of `all`.
template <typename Range, typename Of>
auto mapped(Range&& all, const Of& of) {
  std::vector<std::decay_t<std::invoke_result_t<const Of&, decltype(*std::begin(all))>>> values;
  for (auto&& item : all) values.push_back(std::invoke(of, item));
  return values;
}

/// Nanoseconds in seconds.
inline double in_seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// A span, that of a record, or that of what a pointer points to.
inline constexpr auto span_of = [](auto& record) -> auto& {
  if constexpr (requires { record->span; })
    return record->span;
  else if constexpr (requires { record.span; })
    return record.span;
  else
    return record;
};
/// When it starts: a projection.
inline constexpr auto start_of = [](const auto& record) { return span_of(record).start_ns; };

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

/// From the first start to the last end of the records in all of the lists. Without any it ends
/// before it starts.
template <typename... Lists>
Span hull_of_all(const Lists&... lists) {
  Span all{INT64_MAX, INT64_MIN};
  const auto see = [&all](const auto& list) {
    for (const auto& record : list) all = hull_of(all, span_of(record));
  };
  (see(lists), ...);
  return all;
}

/// When a rank communicated.
inline SpanSet communication_times(const RankActivity& rank) {
  return union_of(mapped(rank.communications, span_of));
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

// The same rank on another clock.

/// A pass keeps durations since its begin. `map` need not be linear, so the ends of a duration are
/// mapped and not its length.
template <typename Map>
void map_times(BackwardPass& pass, const Map& map) {
  const std::int64_t begin = pass.span.start_ns;
  const auto since_begin = [&](std::int64_t ns) { return map(begin + ns) - map(begin); };
  std::int64_t before = 0;
  for (LayerRecord& layer : pass.layers) {
    const std::int64_t end = before + layer.backward_ns;
    layer.backward_ns = since_begin(end) - since_begin(before);
    before = end;
  }
  for (GradientRecord& gradient : pass.gradients)
    gradient.ready_ns = since_begin(gradient.ready_ns);
  pass.span = {map(begin), map(pass.span.end_ns)};
}

/// `map`: from a time in ns to one, never decreasing. RankActivity::stamp_ns stays.
template <typename Map>
void map_times(RankActivity& rank, const Map& map) {
  const auto move = [&map](Span& s) { s = {map(s.start_ns), map(s.end_ns)}; };
  for_each_spans(rank, [&move](const char*, std::vector<Span>& spans) {
    for (Span& s : spans) move(s);
  });
  if (rank.pauses)
    for (PhaseSpan& s : *rank.pauses) move(s.span);
  const auto move_step = [&move](StepSpan& s) {
    move(s.span);
    if (s.on_device) move(*s.on_device);
  };
  for (StepSpan& s : rank.steps) {
    move_step(s);
    for (StepSpan& mark : s.marks) move_step(mark);
  }
  for (PhaseSpan& s : rank.phases) move(s.span);
  for (Communication& c : rank.communications) {
    move(c.span);
    if (c.ready_ns != kNotReady) c.ready_ns = map(c.ready_ns);
  }
  for (BackwardPass& p : rank.passes) map_times(p, map);
}

inline void shift(RankActivity& rank, std::int64_t by_ns) {
  map_times(rank, [by_ns](std::int64_t ns) { return ns + by_ns; });
}

}  // namespace linerate::trace
