// The answer of the closed model of Agarwal et al. 2021 to one combination.
#pragma once

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/whatif/agarwal_options.hpp"

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

}  // namespace linerate::whatif
