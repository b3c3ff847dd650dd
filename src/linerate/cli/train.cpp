// linerate train: starts `linerate-torch`, in the same folder, with the same arguments; this one
// never loads LibTorch.
#include <CLI/CLI.hpp>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"

namespace linerate::cli {

void setup_train(CLI::App& app) {
  CLI::App* train =
      app.add_subcommand("train", "Train a network of the zoo data-parallel, and record the run.");
  train->set_help_flag();  // linerate-torch knows the options
  train->allow_extras();
  train->prefix_command();
  train->callback([] { start_beside("linerate-torch"); });
}

}  // namespace linerate::cli
