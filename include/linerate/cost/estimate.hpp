// A predicted duration with its uncertainty: what every cost model answers.
#pragma once

namespace linerate::cost {

/// Seconds, with a 90 % interval. `extrapolated`: outside the sizes or the rank count that were
/// measured.
struct Estimate {
  double seconds = 0;         // predicted
  double low = 0;             // end of the interval
  double high = 0;            // the other end
  bool extrapolated = false;  // beyond what was measured
};

}  // namespace linerate::cost
