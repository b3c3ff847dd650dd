// A log or table of collectives from a text, and what is said where there is none.
#pragma once

#include <string>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"

namespace linerate::bench_logs {

inline CollectiveLog read(const std::string& text, const CollectiveLogOptions& options = {},
                          const std::string& name = "bench.log") {
  trace::InputFile input = trace::InputFile::from_memory(text, name);
  return read_collective_log(input, options);
}

inline std::string refusal(const std::string& text, const CollectiveLogOptions& options = {}) {
  try {
    read(text, options);
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace linerate::bench_logs
