// Advice as text for a terminal.
#pragma once

#include <string>
#include <vector>

#include "linerate/doc/advice.hpp"

namespace linerate::report {

/// What is answered: the present strategy measured and predicted, what to do, what linerate's own
/// strategies would add.
std::vector<std::string> paragraphs_of(const doc::Advice& advice);

/// "between 1.006 and 1.012 Gbit/s": brackets are 1 % wide, which takes four digits to show.
std::string bracket_of(const doc::TurningPoint& turning_point);

/// The candidates of the short list, without `all`. An example: ten bucket sizes of one exchange
/// are tried. They are one family, and its best stands for them. A setting that is in use or
/// advised is shown whatever its place.
std::vector<const doc::Candidate*> shown_candidates(const doc::Advice& advice, bool all);

/// Without `all`: the best setting of each exchange, what is in use and what is advised.
std::string to_text(const doc::Advice& advice, bool all);

}  // namespace linerate::report
