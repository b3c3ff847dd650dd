// linerate calibrate --second-order, inside linerate-torch.
#include "linerate/cli/calibrate_arguments.hpp"
#include "linerate/cli/torch_verb.hpp"
#include "linerate/torch_adapter/second_order_probe.hpp"

namespace linerate::cli {

void setup_torch_calibrate(CLI::App& app) {
  add_calibrate_verb(app, [](const CalibrateArguments& o) {
    run_calibrate(
        o, o.probes_second_order() ? torch_adapter::measure_second_order : SecondOrderProbe());
  });
}

}  // namespace linerate::cli
