// Starts another program of linerate in place of this one.
#pragma once

#include <string>
#include <vector>

namespace linerate::cli {

/// `program` lies beside this one and gets the arguments; the first is the verb. Throws UsageError
/// where it cannot be started: it was not built.
[[noreturn]] void start_beside(const std::string& program,
                               const std::vector<std::string>& arguments);

}  // namespace linerate::cli
