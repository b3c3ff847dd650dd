// Where a Workload comes from when a user names one: a file, a network of the catalogue, or
// its size alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "linerate/core/units.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::models {

/// -w FILE, -w zoo:NAME or -w params:7B,bf16, and what the user says about it. 0 and empty: not
/// said.
struct WorkloadSource {
  std::string reference;
  std::shared_ptr<const doc::Workload> held;  // what a file would hold; absent: it is read
  std::string input;                          // zoo: shape of one sample, "3x32x32"
  std::int64_t classes = 0;                   // zoo: of the head
  std::int64_t batch = 0;                     // zoo: samples per rank
  std::optional<Seconds> step_time;           // of one device, as its source measured it
  bool step_time_covers_step = true;          // else forward and backward alone
};

/// A file's step is scaled to the time given, or completed by it if it is unknown. Throws
/// UsageError for options that conflict, InputError for a file that cannot be read.
doc::Workload load_workload(const WorkloadSource& source);

}  // namespace linerate::models
