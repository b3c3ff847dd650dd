// The Workload of a known network: gradients in ready order, factors, times split by FLOPs if a
// total is given.
#pragma once

#include <optional>
#include <string>
#include <string_view>

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

}  // namespace linerate::models
