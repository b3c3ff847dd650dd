// linerate calibrate --second-order or --device, inside linerate-torch.
#include "linerate/cli/calibrate_verb.hpp"
#include "linerate/cli/torch_verb.hpp"
#include "linerate/torch_adapter/device_probe.hpp"
#include "linerate/torch_adapter/second_order_probe.hpp"

namespace linerate::cli {

void setup_torch_calibrate(CLI::App& app) {
  add_calibrate_verb(app, [](const CalibrateArguments& a) {
    run_calibrate(a, {torch_adapter::measure_second_order, torch_adapter::measure_on_device});
  });
}

}  // namespace linerate::cli
