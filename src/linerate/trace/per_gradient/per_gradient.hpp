// Zhang et al.'s per-gradient log (arXiv 2006.10103, netx-repo/training-bottleneck) becomes a
// Workload.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "linerate/doc/workload.hpp"
#include "linerate/trace/input/input.hpp"

namespace linerate::trace {

/// What the one-device time given by the user covers.
enum class StepTimeCovers { step, forward_backward };

struct PerGradientOptions {
  std::optional<std::filesystem::path> add_cost = {};  // "bytes,seconds" lines, no header
  std::optional<double> step_time_s = {};
  StepTimeCovers covers = StepTimeCovers::step;
};

bool is_per_gradient_log(std::string_view head);
/// Line 1 prose, line 2 batches, line 3 gradients G, then batches x G lines "wait_us,bytes" in
/// ready order, last layer first. Waits are averaged over batches. Throws InputError naming file
/// and line.
doc::Workload read_per_gradient_log(Input& input, const PerGradientOptions& options = {});
/// AddEst: "bytes,seconds" lines with ascending bytes. Throws InputError.
std::vector<doc::AddCost> read_add_cost(Input& input);

}  // namespace linerate::trace
