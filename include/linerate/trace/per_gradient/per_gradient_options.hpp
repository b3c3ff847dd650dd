// What a per-gradient log (arXiv 2006.10103) leaves open.
#pragma once

#include <filesystem>
#include <optional>

namespace linerate::trace {

/// What the one-device time given by the user covers.
enum class StepTimeCovers { step, forward_backward };

/// What a log of gradients leaves open.
struct PerGradientOptions {
  std::optional<std::filesystem::path> add_cost = {};  // "bytes,seconds" lines, no header
  std::optional<double> step_time_s = {};              // of the step, as its source measured it
  StepTimeCovers covers = StepTimeCovers::step;        // what that time is of
};

}  // namespace linerate::trace
