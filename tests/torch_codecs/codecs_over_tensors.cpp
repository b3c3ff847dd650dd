// The suites of tests/compress on the codecs over tensors.
#include "compress/rank_group.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"
#include "torch_codecs/bounds.hpp"

namespace linerate::compress {

std::unique_ptr<const Compressor> made(const std::string& strategy) {
  return torch_codecs::over_tensors(doc::parse_component(strategy));
}
std::uint64_t many_steps(std::uint64_t steps) { return steps / 10; }
/// Seven steps from one another's results, where one may differ from the native one.
double frozen_bound(const std::string& strategy) { return 8 * torch_codecs::bound_of(strategy); }

}  // namespace linerate::compress
