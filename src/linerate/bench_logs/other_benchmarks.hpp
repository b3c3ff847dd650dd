// Private: logs of benchmarks that are not read, by name.
#pragma once

#include <string_view>

namespace linerate::bench_logs {

/// What wrote the log, by words of its first bytes; empty for anything else.
std::string_view other_benchmark(std::string_view head);

}  // namespace linerate::bench_logs
