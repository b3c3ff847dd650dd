// The library never prints: it hands records to a sink, which only the command line installs.
#pragma once

#include <functional>
#include <string>

namespace linerate::log {

enum class Level { info, warning };
using Sink = std::function<void(Level, const std::string&)>;

/// Installs the sink (empty: records are dropped, the default). Not thread-safe against running
/// work.
void set_sink(Sink sink);
void info(const std::string& message);
void warning(const std::string& message);

}  // namespace linerate::log
