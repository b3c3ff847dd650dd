#include "linerate/torch_adapter/slow_host.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace linerate::torch_adapter {

void SlowHost::see(const std::string& kind, const exec::CallTimes& times) {
  Count& count = kinds_[kind];
  ++count.all;
  if (!times.was_queued || times.host_s > times.device_s) ++count.slow;
}

std::string SlowHost::note(const std::string& device) const {
  std::vector<std::string> counts;
  for (const auto& [kind, count] : kinds_)
    if (count.slow > 0) counts.push_back(fmt::format("{} of {} {}", count.slow, count.all, kind));
  if (counts.empty()) return "";
  return fmt::format(
      "K-FAC: the host takes longer to enqueue than {} to compute: {}. Steps with many such layers "
      "wait for the host",
      device, fmt::join(counts, ", "));
}

}  // namespace linerate::torch_adapter
