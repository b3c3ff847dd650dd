// bf16: Kalamkar et al. 2019 (arXiv 1905.12322).
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {

CompressorLine compressor_bf16() {
  return {"bf16", [](doc::OptionReader&) { return half_precision(DType::bf16); },
          "Half the bytes at the range of f32: bfloat16, divided by the ranks before the cast.",
          "Kalamkar et al. 2019 (arXiv 1905.12322)"};
}

}  // namespace linerate::compress
