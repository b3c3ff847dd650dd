// Starts another program of linerate in place of this one.
#pragma once

#include <string>

namespace linerate::cli {

/// `program` is in this one's folder and gets the same arguments, the verb first. Throws UsageError
/// if it cannot be started: it was not built.
[[noreturn]] void start_beside(const std::string& program);

}  // namespace linerate::cli
