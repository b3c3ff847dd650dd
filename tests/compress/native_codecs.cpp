// The suites of this folder on the codecs of compress.
#include "compress/rank_group.hpp"

namespace linerate::compress {

std::unique_ptr<const Compressor> made(const std::string& strategy) {
  return make_compressor(doc::parse_component(strategy));
}

}  // namespace linerate::compress
