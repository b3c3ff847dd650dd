// efsignsgd: Karimireddy et al. 2019 (arXiv 1901.09847): signs at the mean magnitude, with error
// feedback. |v - sent|^2 = (1 - |v|_1^2 / (n |v|_2^2)) |v|^2.
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {

CompressorLine compressor_efsignsgd() {
  return {"efsignsgd",
          [](doc::OptionReader&) {
            return scaled_signs({"efsignsgd", LevelRule::mean_magnitude, 0});
          },
          "A bit an element at the tensor's mean magnitude; what is not sent is kept.",
          "Karimireddy et al. 2019 (arXiv 1901.09847)"};
}

}  // namespace linerate::compress
