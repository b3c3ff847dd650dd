// A predicted duration with its uncertainty: what every cost model answers.
#pragma once

namespace linerate::cost {

/// Seconds, with a 90 % interval. `extrapolated`: outside the sizes or the rank count that were
/// measured.
struct Estimate {
  double seconds = 0;
  double low = 0;
  double high = 0;
  bool extrapolated = false;
};

}  // namespace linerate::cost
