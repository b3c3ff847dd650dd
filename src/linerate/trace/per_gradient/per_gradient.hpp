// Zhang et al.'s per-gradient log (arXiv 2006.10103, netx-repo/training-bottleneck) becomes a
// Workload.
#pragma once

#include <string_view>
#include <vector>

#include "linerate/doc/workload.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/per_gradient/per_gradient_options.hpp"

namespace linerate::trace {

bool is_per_gradient_log(std::string_view head);
/// Line 1 prose, line 2 batches, line 3 gradients G, then batches x G lines "wait_us,bytes" in
/// ready order, last layer first. Waits are averaged over batches. Throws InputError naming file
/// and line.
doc::Workload read_per_gradient_log(InputFile& input, const PerGradientOptions& options = {});
/// AddEst: "bytes,seconds" lines with ascending bytes. Throws InputError.
std::vector<doc::AddCost> read_add_cost(InputFile& input);

}  // namespace linerate::trace
