// linerate calibrate; inside `linerate-torch` if LibTorch is to measure something.
#include "linerate/cli/run_program.hpp"
#include "linerate/cli/training_options.hpp"
#include "linerate/cli/verb.hpp"

namespace linerate::cli {

void setup_calibrate(CLI::App& app) {
  add_calibrate_verb(app, [](const CalibrateArguments& a) {
    if (a.options.needs_torch()) start_beside("linerate-torch");
    run_calibrate(a);
  });
}

}  // namespace linerate::cli
