// linerate whatif: what one collective takes on a calibrated cluster.
#include <CLI/CLI.hpp>

#include "linerate/cli/verb.hpp"
#include "linerate/cli/whatif_collective.hpp"

namespace linerate::cli {

void setup_whatif(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("whatif", "Ask what another size, rank count or network would do.");
  verb->require_subcommand(1);
  setup_whatif_collectives(*verb);
}

}  // namespace linerate::cli
