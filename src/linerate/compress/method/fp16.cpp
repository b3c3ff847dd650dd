// fp16: Micikevicius et al. 2018 (arXiv 1710.03740).
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {

CompressorLine compressor_fp16() {
  return {"fp16", [](doc::OptionReader&) { return half_precision(DType::f16); },
          "Half the bytes: IEEE half precision, divided by the ranks before the cast.",
          "Micikevicius et al. 2018 (arXiv 1710.03740)"};
}

}  // namespace linerate::compress
