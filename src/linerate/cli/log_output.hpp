// Records that go to stderr: the library's warnings, always; its other records only on a terminal;
// the notes of results that have no place for them.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "linerate/core/log.hpp"

namespace linerate::cli {

/// Of the library, from here on. Warnings concern the answer and are shown whoever reads them. The
/// rest says what was done, such as which file was written.
inline void print_log_records() {
  log::set_sink([](log::Level level, const std::string& message) {
    if (level == log::Level::warning)
      fmt::print(stderr, "warning: {}\n", message);
    else if (isatty(STDERR_FILENO))
      fmt::print(stderr, "{}\n", message);
  });
}

/// On standard error, as standard output holds JSON or CSV that a program reads.
inline void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

}  // namespace linerate::cli
