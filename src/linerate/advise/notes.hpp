// What an Advice says besides its ranking.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/doc/advice.hpp"

namespace linerate::advise {

/// The compression that changes its steps, without settings of the exchange; empty: none.
std::string compression_of(const doc::Strategy& strategy);

/// Says whether compression pays. It counts the judged compressors and casts whose step is shorter
/// than that of `dense`. `dense` is the best that takes the steps of an uncompressed run. And it
/// says the ratio that would be enough. `full_use`: ratio_for_full_use().
std::vector<std::string> about_compression(const std::vector<Judged>& judged,
                                           const doc::Candidate& dense,
                                           std::optional<double> full_use,
                                           const AdviseOptions& options);

/// Adds notes on what was not known, extrapolated or refused, and on steps given for what is no
/// candidate. `judged`: best first, as the Advice's candidates.
void add_notes(doc::Advice& advice, const std::vector<Judged>& judged, const AdviseOptions& options,
               const Evaluator& evaluator);

/// Notes that say the same of several strategies become one, which begins with all their names.
std::vector<std::string> joined_alike(const std::vector<std::string>& notes);

}  // namespace linerate::advise
