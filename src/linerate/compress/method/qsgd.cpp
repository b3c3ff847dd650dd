// qsgd: Alistarh et al. 2017 (arXiv 1610.02132). The payload has a bucket's 2-norm, and each
// element as a whole number of s-ths of it, rounded stochastically. Unbiased. The variance is at
// most min(d / s^2, sqrt(d) / s) |v|^2 for buckets of d.
//
// Example: s = 7, a bucket with the norm 14, and an element 3. The grid's unit is 2, so 3 is 1.5
// units. It becomes 1 or 2 units with probability 1/2 each.
#include <algorithm>
#include <cmath>

#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// A norm beyond the largest f32 is sent as that, and the codes of the largest elements are cut.
void norms_of(std::span<const float> v, const GridFormat& format, BucketHead* heads) {
  std::array<double, 4096 / 32> squares;
  sums_of_squares(v, format.bucket, squares.data());
  for (std::size_t b = 0; b * format.bucket < v.size(); ++b)
    heads[b] = {round_up(std::sqrt(squares[b]))};
}

/// s = 2^(bits - 1) - 1: b = ceil(log2(2 s + 1)) bits in two's complement, the most negative code
/// unused.
GridFormat qsgd_format(doc::OptionReader& options) {
  GridFormat format{.method = "qsgd", .rule = HeadRule::norm};
  format.bits = read_bits(options, {2, 4, 8});
  format.top = (1 << (format.bits - 1)) - 1;
  format.bucket = read_bucket(options, 128);
  format.is_signed = format.is_stochastic = format.unbiased = true;
  format.heads_of = norms_of;
  // Error feedback needs a contraction: the error must be at most the norm. Buckets of 128 with 8
  // bits have a variance of .008, with 4 bits 1.6, and with 2 bits 11. So only 8 bits may keep a
  // residual then.
  const auto d = static_cast<double>(format.bucket);
  const double variance = std::min(d / (format.top * format.top), std::sqrt(d) / format.top);
  format.residual = variance < 1 ? Residual::optional : Residual::none;
  return format;
}

}  // namespace

CompressorLine compressor_qsgd() {
  return {"qsgd", [](doc::OptionReader& options) { return grid_codes(qsgd_format(options)); },
          "Each element as a whole number of parts of its bucket's norm, rounded at random.",
          "Alistarh et al. 2017 (arXiv 1610.02132)"};
}

}  // namespace linerate::compress
