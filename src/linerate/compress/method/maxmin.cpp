// maxmin: 2^bits points from the least to the largest value of a bucket, as the 8-bit codecs of
// Bagua (Gan et al. 2021, arXiv 2107.01499) and of Markov et al. 2022, CGX (arXiv 2111.08617).
// |error| <= unit / 2, stochastic < unit; constant buckets are exact.
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// The difference is taken in f64, because in f32 that of -3e38 and 3e38 is infinite. With 1 bit
/// such a unit is cut to the largest f32.
void ends_of(std::span<const float> v, const GridFormat& format, BucketHead* heads) {
  std::array<Range, 4096 / 32> ranges;
  ranges_of(v, format.bucket, ranges.data());
  for (std::size_t b = 0; b * format.bucket < v.size(); ++b) {
    const double width = static_cast<double>(ranges[b].largest) - ranges[b].least;
    heads[b] = {ranges[b].least, round_up(width / format.top)};
  }
}

GridFormat maxmin_format(doc::OptionReader& options) {
  GridFormat format{.method = "maxmin", .rule = HeadRule::ends};
  format.bits = read_bits(options, {1, 2, 4, 8});
  format.top = (1 << format.bits) - 1;
  format.bucket = read_bucket(options, 512);
  format.is_stochastic = options.choice("rounding", {"nearest", "stochastic"}) == 1;
  format.unbiased = format.is_stochastic;
  format.head_size = 2;
  format.heads_of = ends_of;
  // The kept residual spans at most 1 / top of the values to be sent, or twice that if rounding is
  // stochastic. Error feedback needs the residual to shrink, so this must be below 1.
  format.residual =
      format.top > (format.is_stochastic ? 2 : 1) ? Residual::optional : Residual::none;
  return format;
}

}  // namespace

CompressorLine compressor_maxmin() {
  return {"maxmin", [](doc::OptionReader& options) { return grid_codes(maxmin_format(options)); },
          "Even points between the least and the largest value of each bucket.",
          "Markov et al. 2022, CGX (arXiv 2111.08617)"};
}

}  // namespace linerate::compress
