// Advice as text for a terminal.
#pragma once

#include <string>

#include "linerate/doc/advice.hpp"

namespace linerate::cli {

/// Without `all`: the best setting of each exchange, what is in use and what is advised.
std::string text_of(const doc::Advice& advice, bool all);

}  // namespace linerate::cli
