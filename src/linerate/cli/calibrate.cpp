// linerate calibrate; inside `linerate-torch` if what K-FAC costs is to be measured.
#include "linerate/cli/calibrate_verb.hpp"
#include "linerate/cli/start_beside.hpp"
#include "linerate/cli/verb.hpp"

namespace linerate::cli {

void setup_calibrate(CLI::App& app) {
  add_calibrate_verb(app, [](const CalibrateArguments& a) {
    if (a.options.probes_second_order()) start_beside("linerate-torch");
    run_calibrate(a);
  });
}

}  // namespace linerate::cli
