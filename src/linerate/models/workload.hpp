// The Workload of a known network: gradients in ready order, factors, times split by FLOPs if a
// total is given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "linerate/core/units.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/models/catalogue.hpp"

namespace linerate::models {

struct WorkloadOptions {
  Options model{};
  std::int64_t batch = 0;  // per rank; 0: unknown
  std::optional<double>
      step_s{};  // forward and backward of one rank; split 1 : 2 and then by FLOPs
  std::optional<double> forward_s{};  // given together with backward_s instead of step_s
  std::optional<double> backward_s{};
};

/// The Workload of a model. Layers are the nodes with parameters. Nodes without parameters count to
/// the layer before them, as the layer timer of a measured run sees them. Backward costs twice
/// forward, and the first layer's as much as forward, because it needs no gradient of the input.
/// Without times the ready times are 0 and the layers' times absent. Throws UsageError.
doc::Workload workload(std::string_view name, const WorkloadOptions& options = {});

/// "zoo:resnet50" -> "resnet50", "zoo:inception_v4" -> "inception-v4"; absent when `reference` does
/// not name a model of the zoo.
std::optional<std::string> zoo_name(std::string_view reference);

// Where a Workload comes from when a user names one: a file, a network of the catalogue, or
// its size alone.

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
