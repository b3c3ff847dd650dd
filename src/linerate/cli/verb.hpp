// A verb is one file with one setup function: options struct, subcommand, callback.
#pragma once

#include <array>

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

}  // namespace linerate::cli
