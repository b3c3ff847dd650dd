// The `linerate-torch` program: the verbs that need LibTorch. Started by `linerate`.
#include <CLI/CLI.hpp>

#include "linerate/cli/log_output.hpp"
#include "linerate/cli/run_program.hpp"
#include "linerate/cli/torch_verb.hpp"

using namespace linerate;

int main(int argc, char** argv) {
  CLI::App app{"The verbs of linerate that need LibTorch.", "linerate"};
  app.require_subcommand(1);
  for (const auto setup : cli::kTorchSetups) setup(app);
  cli::print_log_records();
  return cli::run_program(app, argc, argv);
}
