// The answer of `linerate explain` as text.
#pragma once

#include <string>

#include "linerate/trace/explain/explanation.hpp"

namespace linerate::trace {

/// Tables for a terminal, 100 columns wide.
[[nodiscard]] std::string explain_text(const Breakdown& breakdown, const Verdict& verdict);

}  // namespace linerate::trace
