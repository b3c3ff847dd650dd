// A collective does not start at the moment at which its data is ready: the host wakes a thread or
// launches a kernel. The delay is seen only if nothing else can explain the gap, so only
// collectives that came to an idle network count. At least eight are needed, and a 90 % interval no
// wider than a factor of four.
#include "linerate/calibrate/trace_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"

namespace linerate::calibrate {
namespace {

constexpr std::size_t kFewest = 8;
constexpr double kWidest = 4;  // an interval with ends further apart says nothing

/// Seconds, of all ranks.
std::vector<double> delays_on_idle_network(const trace::Job& job) {
  std::vector<double> delays;
  for (const trace::RankActivity& rank : job.ranks) {
    std::int64_t busy_until_ns = INT64_MIN;
    for (const trace::Communication& c : rank.communications) {
      if (c.ready_ns != trace::kNotReady && busy_until_ns <= c.ready_ns)
        delays.push_back(static_cast<double>(c.span.start_ns - c.ready_ns) * 1e-9);
      busy_until_ns = std::max(busy_until_ns, c.span.end_ns);
    }
  }
  return delays;
}

}  // namespace

double start_delay_from_trace(const trace::Job& job, const std::string& source,
                              std::vector<std::string>& notes) {
  const std::vector<double> delays = delays_on_idle_network(job);
  const auto unknown = [&](const std::string& why) {
    notes.push_back(fmt::format(
        "{}: it is not known how long the host takes to start a collective, because {}; taken as 0",
        source, why));
    return 0.0;
  };
  // An importer that did not see when a collective was ready may have put its start there.
  if (std::none_of(delays.begin(), delays.end(), [](double s) { return s > 0; }))
    return unknown("no record says when a collective was ready before it started");
  if (delays.size() < kFewest)
    return unknown(
        fmt::format("{} came to an idle network, and {} are needed", delays.size(), kFewest));
  // The order statistics between which the median lies in 90 % of cases.
  const double around = kNormal90 / 2 / std::sqrt(static_cast<double>(delays.size()));
  const double low = std::max(0.0, quantile(delays, 0.5 - around));
  const double high = std::max(0.0, quantile(delays, 0.5 + around));
  const std::string interval = fmt::format("90 % interval {} to {}, {} collectives",
                                           format_time(low), format_time(high), delays.size());
  if (high > kWidest * low) return unknown(fmt::format("it scatters ({})", interval));
  const double delay = std::max(0.0, median(delays));
  notes.push_back(fmt::format(
      "{}: on an idle network a collective starts {} after its rank is ready for it ({})", source,
      format_time(delay), interval));
  return delay;
}

}  // namespace linerate::calibrate
