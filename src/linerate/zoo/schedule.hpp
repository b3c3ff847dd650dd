// The learning rate over a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace linerate::zoo {

/// Learning rate over a run.
struct RateSchedule {
  std::string name = "one-cycle";  // "constant", "cosine", "one-cycle"
  double rate = 0.05;              // the largest
  std::int64_t steps = 1;          // of the whole run

  /// one-cycle: linear from rate/10 up over the first quarter, then along a cosine down to
  /// rate/1000 (after Smith 2018); cosine: from rate to 0.
  double at(std::int64_t step) const;
};
/// Their names.
const std::vector<std::string>& schedules();
/// Throws UsageError for an unknown name.
void check_schedule(const std::string& name);

}  // namespace linerate::zoo
