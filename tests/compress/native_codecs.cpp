// The suites of this folder on the codecs of compress.
#include "compress/rank_group.hpp"

namespace linerate::compress {

std::unique_ptr<const Compressor> made(const std::string& strategy) {
  return make_compressor(doc::parse_component(strategy));
}
std::uint64_t many_steps(std::uint64_t steps) { return steps; }
double frozen_bound(const std::string&) { return 0; }

}  // namespace linerate::compress
