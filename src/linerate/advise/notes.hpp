// What an Advice says besides its ranking.
#pragma once

#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/doc/advice.hpp"

namespace linerate::advise {

/// What was not known, extrapolated or refused, and steps given for what is no candidate. `judged`:
/// best first, as the Advice's candidates.
void add_notes(doc::Advice& advice, const std::vector<Judged>& judged, const AdviseOptions& options,
               const Evaluator& evaluator);

}  // namespace linerate::advise
