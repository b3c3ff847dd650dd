// Verbs of the `linerate-torch` program, as those of verb.hpp: torch_NAME.cpp defines
// setup_torch_NAME, and NAME stands in this list.
#pragma once

#include <array>

namespace CLI {
class App;
}

namespace linerate::cli {

#define LINERATE_TORCH_VERBS(VERB) \
  VERB(calibrate)                  \
  VERB(train)                      \
  VERB(evaluate)

#define LINERATE_DECLARE_SETUP(name) void setup_torch_##name(CLI::App&);
LINERATE_TORCH_VERBS(LINERATE_DECLARE_SETUP)
#undef LINERATE_DECLARE_SETUP

#define LINERATE_SETUP(name) setup_torch_##name,
inline constexpr std::array kTorchSetups = {LINERATE_TORCH_VERBS(LINERATE_SETUP)};
#undef LINERATE_SETUP

}  // namespace linerate::cli
