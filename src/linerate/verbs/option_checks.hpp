// Bounds of options. CLI11's own print the largest double as the upper end of theirs.
#pragma once

#include <CLI/CLI.hpp>

namespace linerate::verbs {

/// "expected a number above 0, found 0"
CLI::Validator above_zero();
/// "expected a number from 0, found -1"
CLI::Validator from_zero();

}  // namespace linerate::verbs
