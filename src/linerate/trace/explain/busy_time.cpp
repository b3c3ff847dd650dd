// All times of explain are lengths of sets of disjoint intervals (core/intervals.hpp). Two kernels
// from 1 to 4 ms and from 3 to 6 ms are busy for 5 ms. An all-reduce from 4 to 9 ms overlaps for 2
// ms with them, and 3 ms are exposed.
#include "linerate/trace/explain/busy_time.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/doc/exposed_communication.hpp"

namespace linerate::trace {
namespace {

double mean_over(const std::vector<Busy>& all, double Busy::*field) {
  double sum = 0;
  for (const Busy& b : all) sum += b.*field;
  return all.empty() ? 0 : sum / static_cast<double>(all.size());
}

constexpr double Busy::*kBusyFields[] = {&Busy::window_s,           &Busy::compute_s,
                                         &Busy::communication_s,    &Busy::overlap_s,
                                         &Busy::exposed_s,          &Busy::idle_s,
                                         &Busy::exposed_transfer_s, &Busy::exposed_wait_s,
                                         &Busy::exposed_unsplit_s,  &Busy::exposed_transfer_most_s,
                                         &Busy::loading_idle_s};

/// The span as a reader of JSON numbers has it: microseconds in doubles. Near 1.7e15 us, today's
/// time since the epoch, neighbouring doubles are 0.25 us apart. Sums of other tools are over such
/// spans, and tests compare with them.
Span through_doubles(const Span& s, std::int64_t stamp_ns) {
  const auto us = [](std::int64_t ns) {
    return static_cast<double>(static_cast<long double>(ns) / 1000);
  };
  const double start = us(s.start_ns + stamp_ns), end = start + us(s.length());
  const auto ns = [stamp_ns](double t) {
    return static_cast<std::int64_t>(std::llround(static_cast<long double>(t) * 1000)) - stamp_ns;
  };
  return {ns(start), ns(end)};
}

}  // namespace

Busy mean_of(const std::vector<Busy>& all) {
  Busy m;
  for (double Busy::*f : kBusyFields) m.*f = mean_over(all, f);
  return m;
}

Busy over_ranks(const std::vector<Busy>& all) {
  Busy m = mean_of(all);
  for (double Busy::*f : {&Busy::idle_s, &Busy::loading_idle_s}) {
    std::vector<double> values;
    for (const Busy& b : all) values.push_back(b.*f);
    if (values.empty()) continue;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    m.*f = *middle;
  }
  return m;
}

Busy& operator+=(Busy& sum, const Busy& b) {
  for (double Busy::*f : kBusyFields) sum.*f += b.*f;
  return sum;
}

Busy& operator*=(Busy& busy, double factor) {
  for (double Busy::*f : kBusyFields) busy.*f *= factor;
  return busy;
}

Busy measure_as_doubles(const RankActivity& rank) {
  std::vector<Span> compute, communication;
  for (const Span& s : rank.compute) compute.push_back(through_doubles(s, rank.stamp_ns));
  for (const Communication& c : rank.communications)
    communication.push_back(through_doubles(c.span, rank.stamp_ns));
  const SpanSet a = union_of(std::move(compute)), b = union_of(std::move(communication));
  Busy busy;
  busy.compute_s = seconds_of(a);
  busy.communication_s = seconds_of(b);
  busy.overlap_s = seconds_of(intersection_of(a, b));
  busy.exposed_s = seconds_of(doc::exposed_communication(b, a));
  return busy;
}

/// Idle time is the window less all activity of the device. Without a window it is from the first
/// to the last activity.
Busy measure(const RankSets& s, const Span* window) {
  const auto in = [window](const SpanSet& set) {
    return window != nullptr ? clipped(set, *window) : set;
  };
  const SpanSet compute = in(s.compute), communication = in(s.communication), device = in(s.device);
  Busy b;
  b.compute_s = seconds_of(compute);
  b.communication_s = seconds_of(communication);
  b.overlap_s = seconds_of(intersection_of(compute, communication));
  b.exposed_s = seconds_of(doc::exposed_communication(communication, compute));
  b.window_s = window != nullptr ? window->seconds()
               : device.empty()  ? 0
                                 : Span{device.front().start_ns, device.back().end_ns}.seconds();
  b.idle_s = std::max(0.0, b.window_s - seconds_of(device));
  b.loading_idle_s = seconds_of(difference_of(in(s.loading), device));
  // Several collectives may run at once. A moment in which one of them moves data counts as
  // transfer, whoever waits in another. Waiting goes before what could not be split.
  const SpanSet transfer = difference_of(in(s.transfer), compute);
  const SpanSet wait = difference_of(difference_of(in(s.wait), compute), transfer);
  const SpanSet unsplit =
      difference_of(difference_of(difference_of(in(s.unsplit), compute), transfer), wait);
  b.exposed_transfer_s = seconds_of(transfer);
  b.exposed_wait_s = seconds_of(wait);
  b.exposed_unsplit_s = seconds_of(unsplit);
  b.exposed_transfer_most_s = seconds_of(difference_of(in(s.transfer_most), compute));
  return b;
}

}  // namespace linerate::trace
