// The number of ranks a caller counts on, against the one the job has.
#pragma once

#include <optional>

namespace linerate::comm {

/// Throws InputError with both numbers, alike on every rank, if `expected` is not the job's number.
void require_ranks(int found, std::optional<int> expected);

}  // namespace linerate::comm
