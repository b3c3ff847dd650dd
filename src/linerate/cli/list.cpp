// linerate list strategies|...: the registry lines, each with its paper.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "linerate/cli/verb.hpp"

namespace linerate::cli {

void setup_list(CLI::App& app) {
  app.add_subcommand("list", "Print what is registered: strategies, models, cost models.");
}

}  // namespace linerate::cli
