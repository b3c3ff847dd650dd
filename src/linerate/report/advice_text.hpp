// Advice as text for a terminal.
#pragma once

#include <string>

#include "linerate/doc/advice.hpp"

namespace linerate::report {

/// Without `all`: the best setting of each exchange, what is in use and what is advised.
std::string to_text(const doc::Advice& advice, bool all);

}  // namespace linerate::report
