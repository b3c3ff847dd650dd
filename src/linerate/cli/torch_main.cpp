// The `linerate-torch` program: the verbs that need LibTorch. Started by `linerate`.
#include <CLI/CLI.hpp>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/torch_verb.hpp"
#include "linerate/cli/training_options.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/torch_adapter/device_probe.hpp"

using namespace linerate;

int main(int argc, char** argv) {
  CLI::App app{"The verbs of linerate that need LibTorch.", "linerate"};
  app.require_subcommand(1);
  for (const auto setup : cli::kTorchSetups) setup(app);
  cli::print_log_records();
  return cli::run_program(app, argc, argv);
}

// linerate calibrate --second-order or --device, inside linerate-torch.

namespace linerate::cli {

void setup_torch_calibrate(CLI::App& app) {
  add_calibrate_verb(app, [](const CalibrateArguments& a) {
    run_calibrate(a, {torch_adapter::measure_second_order, torch_adapter::measure_on_device});
  });
}

}  // namespace linerate::cli
