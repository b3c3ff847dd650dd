// What the library reports to people. It never prints if a sink is installed; without one, warnings
// go to standard error, since a training run that is wrong must not be silent.
#pragma once

#include <functional>
#include <string>

namespace linerate::log {

/// Of a record: to follow what happens, or to be acted on.
enum class Level { info, warning };
/// Receives records.
using Sink = std::function<void(Level, const std::string&)>;

/// Replaces what receives records, from any thread at any time; a record under way may still reach
/// the sink before. Empty: the default, which writes "linerate: warning: ..." to standard error and
/// drops info.
///
/// Threads call the sink at the same time. What it throws or logs itself is not lost: the default
/// writes the record (a warning) or the sink's own one.
void set_sink(Sink sink);
/// Neither throws, so that destructors may warn.
void info(const std::string& message) noexcept;
/// Reports what may be wrong.
void warning(const std::string& message) noexcept;

}  // namespace linerate::log
