// The losses of a run that a page shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace linerate::report {

/// The loss of every step of a run: what `train --losses` writes.
struct NamedLosses {
  std::string label;            // the file's stem; that of a Timeline if both are of one run
  std::int64_t first_step = 0;  // whose loss is the first
  std::vector<double> values;   // [steps]
};

}  // namespace linerate::report
