// Where the time of a Timeline goes, as a table of a page.
#pragma once

#include <string>

#include "linerate/report/page.hpp"
#include "linerate/trace/explain/explanation.hpp"

namespace linerate::report {

/// What `explain` says, a quantity a row; "n/a" for what is unknown. Means over steps and ranks, or
/// over the whole file if it knows no step; the column bears the file's name.
report::Table breakdown_table(const trace::Explanation& explanation, const std::string& label);

}  // namespace linerate::report
