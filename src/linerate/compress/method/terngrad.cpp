// terngrad: Wen et al. 2017 (arXiv 1705.07878). Each element becomes -s, 0 or +s, at random so that
// the mean is the element. Gradients are first clipped to 2.5 of their standard deviations, and s
// is then the largest magnitude. Example: the deviation is 1 and the largest magnitude 4. So s is
// 2.5, and an element 1 becomes 2.5 in 4 of 10 cases, else 0.
#include <algorithm>
#include <cmath>

#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// The formula takes the deviation from the mean but clips around zero, so a tensor of equal
/// elements is clipped to nothing: clip=0 for such.
void scale_of(std::span<const float> v, const GridFormat& format, BucketHead* head) {
  const Spread spread = spread_of(v);
  const double n = static_cast<double>(v.size());
  const double mean = spread.sum / n;
  const double variance = std::max(0.0, spread.squares / n - mean * mean);
  *head = {spread.largest};
  if (format.clip > 0)
    *head = {std::min(spread.largest, round_up(format.clip * std::sqrt(variance)))};
}

GridFormat terngrad_format(doc::OptionReader& options) {
  GridFormat format{.method = "terngrad", .rule = HeadRule::deviation, .bits = 2, .top = 1};
  format.clip = options.number("clip").value_or(2.5);
  if (!(format.clip >= 0)) options.refuse("clip", "standard deviations, or 0 for none");
  format.is_signed = format.is_stochastic = format.ternary = true;
  format.unbiased = format.clip == 0;
  format.heads_of = scale_of;
  return format;
}

}  // namespace

CompressorLine compressor_terngrad() {
  return {"terngrad",
          [](doc::OptionReader& options) { return grid_codes(terngrad_format(options)); },
          "One of -s, 0 and +s for each element, at random.", "Wen et al. 2017 (arXiv 1705.07878)"};
}

}  // namespace linerate::compress
