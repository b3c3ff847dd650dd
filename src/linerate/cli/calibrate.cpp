// linerate calibrate; inside `linerate-torch` if what K-FAC costs is to be measured.
#include "linerate/cli/calibrate_arguments.hpp"
#include "linerate/cli/start_beside.hpp"
#include "linerate/cli/verb.hpp"

namespace linerate::cli {

void setup_calibrate(CLI::App& app) {
  add_calibrate_verb(app, [](const CalibrateArguments& o) {
    if (o.probes_second_order()) start_beside("linerate-torch");
    run_calibrate(o);
  });
}

}  // namespace linerate::cli
