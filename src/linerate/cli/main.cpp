// The `linerate` command. A verb that needs LibTorch is started as `linerate-torch`, as git does
// with its verbs, so that every other verb starts in milliseconds.
#include <CLI/CLI.hpp>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/version.hpp"

using namespace linerate;

int main(int argc, char** argv) {
  CLI::App app{"Measures, predicts and runs synchronous data-parallel training.", "linerate"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(kVersion));
  for (const auto setup : cli::kSetups) setup(app);
  cli::print_log_records();
  return cli::run_program(app, argc, argv);
}
