// The library's messages to people. It never prints if a sink is installed. Without one, warnings
// go to standard error, since a training run that is wrong must not be silent.
#pragma once

#include <functional>
#include <string>

namespace linerate::log {

/// The kind of a record: to follow what happens, or to be acted on.
enum class Level { info, warning };
/// Receives records.
using Sink = std::function<void(Level, const std::string&)>;

/// Replaces the sink, from any thread at any time; a record in flight may still reach the sink
/// before. Empty: the default, which writes "linerate: warning: ..." to standard error and drops
/// info.
///
/// Threads call the sink at the same time. If the sink throws, the default writes the record, if it
/// is a warning. If the sink logs itself, the default writes the sink's own record.
void set_sink(Sink sink);
/// Neither throws, so that destructors may warn.
void info(const std::string& message) noexcept;
/// Reports what may be wrong.
void warning(const std::string& message) noexcept;

}  // namespace linerate::log
