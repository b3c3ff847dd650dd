// The answer of the closed model of Agarwal et al. 2021 to one combination.
#pragma once

#include "linerate/advise/question.hpp"
#include "linerate/plan/planner.hpp"

namespace linerate::advise {

/// Buckets filled by size (ddp): the overlapped baseline; with a codec the compressed form, encode
/// and decode after backward. Fills step, exposed time, scaling factor, required ratio and encode
/// budget. Throws UsageError for other strategies.
void answer_agarwal(const doc::Workload& workload, const plan::Planner& planner,
                    const cost::CostModel& model, const Question& question, Prediction& prediction);

}  // namespace linerate::advise
