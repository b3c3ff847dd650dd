// The answer of the closed model of Agarwal et al. 2021 to one combination.
#pragma once

#include "linerate/advise/question.hpp"

namespace linerate::advise {

/// Strategy ddp, its codec adding encode and decode after backward; the ratio in `prediction`
/// decides between the overlapped baseline (1) and the compressed form. Fills step, exposed time,
/// scaling factor, required ratio and encode budget. Throws UsageError for other strategies.
void answer_agarwal(const doc::Workload& workload, const doc::Strategy& strategy,
                    const cost::CostModel& model, const Question& question, Prediction& prediction);

}  // namespace linerate::advise
