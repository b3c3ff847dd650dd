// What a logged device was asked for, in words.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "torch_adapter/streams/logged_guard.hpp"

namespace linerate::support {

/// Since the last time: "1:2 does task 3", "1:2 records 0", "1:2 waits 0" (device:stream), "host
/// waits 0"; of events that take times "1:2 sets a mark", "host waits for a mark".
inline std::vector<std::string> taken_calls() {
  std::vector<std::string> lines;
  for (const GuardCall& c : std::exchange(guard_log().calls, {})) {
    const std::string where = fmt::format("{}:{}", static_cast<int>(c.device), c.stream);
    switch (c.kind) {
      case GuardCall::Kind::work:
        lines.push_back(fmt::format("{} does task {}", where, c.id.task));
        break;
      case GuardCall::Kind::record:
        lines.push_back(fmt::format("{} records {}", where, c.event));
        break;
      case GuardCall::Kind::block:
        lines.push_back(fmt::format("{} waits {}", where, c.event));
        break;
      case GuardCall::Kind::host_wait:
        lines.push_back(fmt::format("host waits {}", c.event));
        break;
      case GuardCall::Kind::other_wait:
      case GuardCall::Kind::query:
        lines.push_back(fmt::format("host asks {} for everything", where));
        break;
      case GuardCall::Kind::mark:
        lines.push_back(where + " sets a mark");
        break;
      case GuardCall::Kind::mark_wait:
        lines.push_back("host waits for a mark");
    }
  }
  return lines;
}

}  // namespace linerate::support
