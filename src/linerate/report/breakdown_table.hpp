// Where the time of a Timeline goes, as a table of a page.
#pragma once

#include <string>

#include "linerate/doc/timeline.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

/// What `explain` says about it, a quantity a row; "n/a" for what is unknown. Means over steps and
/// ranks, or over the whole file if it knows no step; the column bears the file's name. A table
/// without head for a Timeline without events.
report::Table breakdown_table(const doc::Timeline& timeline, const std::string& label);

}  // namespace linerate::report
