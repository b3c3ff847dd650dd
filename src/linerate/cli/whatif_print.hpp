// The answer of `linerate whatif` as JSON, CSV or a table.
#pragma once

#include "linerate/advise/question.hpp"

namespace linerate::cli {

void print_json(const advise::Answer& answer, advise::Preset preset);
void print_csv(const advise::Answer& answer, advise::Preset preset);
void print_table(const advise::Answer& answer, const advise::Question& question,
                 const doc::Workload& workload);

}  // namespace linerate::cli
