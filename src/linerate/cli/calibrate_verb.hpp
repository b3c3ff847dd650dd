// linerate calibrate [--from LOG] -o cluster.json. Its verb stands in both programs: what K-FAC
// costs, and what anything costs on a device, is measured by LibTorch.
#pragma once

#include <string>

#include "linerate/verbs/calibrate.hpp"

namespace linerate::cli {

struct CalibrateArguments {
  verbs::CalibrateOptions options;
  std::string output;
  bool json = false;
};

void add_calibrate_verb(CLI::App& app, void (*run)(const CalibrateArguments&));
/// `probes`: for needs_torch(), else empty.
void run_calibrate(const CalibrateArguments& arguments, const verbs::TorchProbes& probes = {});

}  // namespace linerate::cli
