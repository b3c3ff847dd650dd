// A verb is one file with one setup function: arguments, subcommand, callback.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"

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

/// What a verb is given: the options of the library's call, and what is done with its result.
template <typename Options>
struct Given {
  Options options;
  std::string output, html;  // files; empty: none
  bool all = false;          // prints what is else left out
  bool json = false;         // prints JSON
};

/// A verb of the library with its options, and what it will be given.
template <typename Arguments>
std::pair<CLI::App*, std::shared_ptr<Arguments>> add_verb(CLI::App& app, const std::string& name,
                                                          const std::string& says,
                                                          Arguments defaults = {}) {
  const auto given = std::make_shared<Arguments>(std::move(defaults));
  CLI::App* verb = app.add_subcommand(name, says);
  add_options(*verb, given->options);
  return {verb, given};
}

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
