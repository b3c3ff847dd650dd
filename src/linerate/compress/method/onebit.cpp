// onebit: Seide et al. 2014 (Interspeech): signs, at the mean of the elements of each sign.

#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// The paper's blocks are columns; 0 is one block.
SignFormat onebit_format(doc::OptionReader& options) {
  const std::int64_t block = options.integer("block", 0);
  if (block < 0 || block % 32 != 0) options.refuse("block", "0 or a multiple of 32 elements");
  return {"onebit", LevelRule::mean_of_class, block};
}

}  // namespace

CompressorLine compressor_onebit() {
  return {"onebit", [](doc::OptionReader& options) { return scaled_signs(onebit_format(options)); },
          "A bit an element, at the mean of the elements of its sign; what is not sent is kept.",
          "Seide et al. 2014 (Interspeech)"};
}

}  // namespace linerate::compress
