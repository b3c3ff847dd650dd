#include "linerate/trace/kineto/device_clock.hpp"

#include <algorithm>

namespace linerate::trace {

LaunchTimes::LaunchTimes(const KinetoTrace& t) : by_correlation_(t.launches) {
  std::sort(by_correlation_.begin(), by_correlation_.end(),
            [](const Launch& a, const Launch& b) { return a.correlation < b.correlation; });
}

const Launch* LaunchTimes::of(std::uint64_t correlation) const {
  const auto at =
      std::lower_bound(by_correlation_.begin(), by_correlation_.end(), correlation,
                       [](const Launch& l, std::uint64_t c) { return l.correlation < c; });
  const bool found =
      correlation != 0 && at != by_correlation_.end() && at->correlation == correlation;
  return found ? &*at : nullptr;
}

DeviceClock::DeviceClock(const KinetoTrace& t, const LaunchTimes& launches, Span window) {
  for (const DeviceEvent& e : t.device) {
    if (e.copy || is_communication_kernel(t, e)) continue;
    const Launch* launch = launches.of(e.correlation);
    if (launch != nullptr && launch->start_ns >= window.start_ns &&
        launch->start_ns <= window.end_ns)
      done_.push_back({launch->start_ns, e.span.end_ns});
  }
  std::sort(done_.begin(), done_.end(),
            [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  for (std::size_t i = 1; i < done_.size(); ++i)
    done_[i].end_ns = std::max(done_[i].end_ns, done_[i - 1].end_ns);
}

std::optional<std::int64_t> DeviceClock::work_done_by(std::int64_t host_ns) const {
  const auto after =
      std::upper_bound(done_.begin(), done_.end(), host_ns,
                       [](std::int64_t time, const Span& s) { return time < s.start_ns; });
  if (after == done_.begin()) return std::nullopt;
  return (after - 1)->end_ns;
}

std::int64_t DeviceClock::done_by(std::int64_t host_ns) const {
  return std::max(host_ns, work_done_by(host_ns).value_or(host_ns));
}

}  // namespace linerate::trace
