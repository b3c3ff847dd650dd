// linerate calibrate [--from LOG] -o cluster.json. Its verb stands in both programs: what K-FAC
// costs is measured by LibTorch.
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
/// `probe`: for probes_second_order(), else empty.
void run_calibrate(const CalibrateArguments& arguments, const verbs::SecondOrderProbe& probe = {});

}  // namespace linerate::cli
