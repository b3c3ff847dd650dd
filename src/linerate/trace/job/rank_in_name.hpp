// Private: the rank that a file's name gives.
#pragma once

#include <string_view>

namespace linerate::trace {

/// The rank in a file name: rank-3, rank3, rank_3, worker3; -1 when there is none.
int rank_in_name(std::string_view path);

}  // namespace linerate::trace
