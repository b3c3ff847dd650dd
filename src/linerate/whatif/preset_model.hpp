// The answer of the closed model of Agarwal et al. 2021 to one combination.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulator.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::whatif {

/// Answers for buckets that are filled by size (ddp). Without a codec it is the overlapped
/// baseline. With a codec it is the compressed form, with encode and decode after backward,
/// whatever on= says. The needed ratio is given for the paper's buckets and for those that DDP
/// fills. Under wire= it comes on top of the cast. Reads ranks and ratio of the prediction; fills
/// step, exposed communication, scaling factor, required ratio and encode budget. Throws UsageError
/// for other strategies.
void answer_agarwal(const doc::Workload& workload, const plan::Planner& planner,
                    const cost::CostModel& model, const AgarwalOptions& options,
                    doc::Prediction& prediction);

// Where the time of a predicted step with K-FAC goes.

/// Exposed seconds of each part by exclusion, summing to `step_s`, the predicted step of the whole
/// Plan.
doc::StepParts step_parts(const doc::Plan& plan, const cost::CostModel& model, double step_s,
                          sim::Simulator& simulator);

// Which cost model a question is answered by: the Cluster's own, or that of a paper's preset.

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
