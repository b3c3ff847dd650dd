// What a per-gradient log (arXiv 2006.10103) leaves open.
#pragma once

#include <filesystem>
#include <optional>

namespace linerate::trace {

/// What the one-device time given by the user covers.
enum class StepTimeCovers { step, forward_backward };

struct PerGradientOptions {
  std::optional<std::filesystem::path> add_cost = {};  // "bytes,seconds" lines, no header
  std::optional<double> step_time_s = {};
  StepTimeCovers covers = StepTimeCovers::step;
};

}  // namespace linerate::trace
