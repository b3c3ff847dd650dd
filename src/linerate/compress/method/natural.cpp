// natural: Horvath et al. 2019 (arXiv 1905.10988). Each element becomes a neighbouring power of
// two, at random so that its mean is the element. The variance is at most 1/8 of its square. 9 bits
// by default: sign and exponent as they are, in one pass and without a limit of magnitudes. 8 bits
// reach 2^126 below the largest element, which a pass before finds. A smaller element becomes 0 or
// the least power. Biased in one place: above 2^127 there is no power, and values are rounded down.
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

PowerFormat natural_format(doc::OptionReader& options) {
  return read_bits(options, {8, 9}, 9) == 8 ? PowerFormat::eight_bits : PowerFormat::nine_bits;
}

std::unique_ptr<const Compressor> make_natural(doc::OptionReader& options) {
  const PowerFormat format = natural_format(options);
  return built_in(
      {.rounds = one_round([format](std::int64_t n) { return gathered(bytes_of(format, n)); }),
       .choice = format,
       .residual = Residual::optional,
       .is_unbiased = true});
}

}  // namespace

std::int64_t bytes_of(PowerFormat format, std::int64_t n) {
  return format == PowerFormat::eight_bits ? 4 + pad4(n) : pad4(ceil_div(9 * n, 8));
}

CompressorLine compressor_natural() {
  return {"natural", make_natural,
          "Sign and exponent of each element, rounded at random to a power of two.",
          "Horvath et al. 2019 (arXiv 1905.10988)"};
}

}  // namespace linerate::compress
