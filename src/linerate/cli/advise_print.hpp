// Advice as text for a terminal.
#pragma once

#include <string>

#include "linerate/doc/advice.hpp"

namespace linerate::cli {

std::string text_of(const doc::Advice& advice);

}  // namespace linerate::cli
