// A verb is one file with one setup function: options struct, subcommand, callback.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "linerate/core/error.hpp"

namespace CLI {
class App;
}

namespace linerate::cli {

// In the order of --help. A new verb is a file here that defines setup_NAME, and a line in this
// list.
#define LINERATE_VERBS(VERB) \
  VERB(list)                 \
  VERB(train)                \
  VERB(import)               \
  VERB(explain)              \
  VERB(calibrate)            \
  VERB(whatif)               \
  VERB(plan)                 \
  VERB(rehearse)             \
  VERB(evaluate)             \
  VERB(compare)              \
  VERB(export)               \
  VERB(advise)               \
  VERB(report)

#define LINERATE_DECLARE_SETUP(name) void setup_##name(CLI::App&);
LINERATE_VERBS(LINERATE_DECLARE_SETUP)
#undef LINERATE_DECLARE_SETUP

#define LINERATE_SETUP(name) setup_##name,
inline constexpr std::array kSetups = {LINERATE_VERBS(LINERATE_SETUP)};
#undef LINERATE_SETUP

// The sub-verbs `linerate whatif all-reduce | all-gather | ...`: the time of one collective.

/// Adds one sub-verb per collective to `whatif`. Its own callback must return at once when one of
/// them was given.
void setup_whatif_collectives(CLI::App& whatif);

// Records that go to stderr: the library's warnings, always; its other records only on a terminal;
// the notes of results that have no place for them.

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
