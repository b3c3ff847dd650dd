// Where the process groups of the suites come from.
#pragma once

namespace linerate::comm::suite {

/// Python's: makes a gloo group of all ranks and gives its name.
extern const char* (*new_group)();

}  // namespace linerate::comm::suite
