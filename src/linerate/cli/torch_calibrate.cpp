// linerate calibrate --second-order, inside linerate-torch.
#include "linerate/cli/calibrate_verb.hpp"
#include "linerate/cli/torch_verb.hpp"
#include "linerate/torch_adapter/second_order_probe.hpp"

namespace linerate::cli {

void setup_torch_calibrate(CLI::App& app) {
  add_calibrate_verb(app, [](const CalibrateArguments& a) {
    run_calibrate(a, a.options.probes_second_order() ? torch_adapter::measure_second_order
                                                     : verbs::SecondOrderProbe());
  });
}

}  // namespace linerate::cli
