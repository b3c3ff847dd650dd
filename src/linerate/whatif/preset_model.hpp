// Which cost model a question is answered by: the Cluster's own, or that of a paper's preset.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::whatif {

/// What an empty list of strategies stands for: the preset's own, else what the Workload's source
/// shows in use.
doc::Strategy default_strategy(Preset preset, const doc::Workload& workload);

/// Whose costs count for codecs that the Cluster does not have. Training learns its own. The model
/// of Zhang et al. has none, and that of Agarwal et al. has the paper's.
enum class CodecCosts { own, known_elsewhere };

cost::CostModel cost_model(const doc::Workload& workload, const doc::Cluster& cluster,
                           const Question& question, CodecCosts costs);

/// The name of a preset; "" for none.
std::string_view name_of(Preset preset);

/// A sentence each on what the documents have and a paper's model ignores.
std::vector<std::string> left_out(const doc::Workload& workload, const doc::Cluster& cluster,
                                  Preset preset);

}  // namespace linerate::whatif
