#include "expectation.hpp"

namespace linerate::compress {

std::vector<Expectation> sparse_and_low_rank_expectations() { return {}; }

}  // namespace linerate::compress
