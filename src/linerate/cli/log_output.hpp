// Where the library's records go: warnings to stderr, always; the rest only on a terminal.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "linerate/core/log.hpp"

namespace linerate::cli {

inline void print_log_records() {
  log::set_sink([](log::Level level, const std::string& message) {
    if (level == log::Level::warning)
      fmt::print(stderr, "warning: {}\n", message);
    else if (isatty(STDERR_FILENO))
      fmt::print(stderr, "{}\n", message);
  });
}

}  // namespace linerate::cli
