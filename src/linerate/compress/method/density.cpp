#include "linerate/compress/method/density.hpp"

#include <fmt/format.h>

namespace linerate::compress {

double read_density(doc::OptionReader& options) {
  const double density = options.number("density").value_or(0.01);
  if (!(density > 0 && density <= 1)) options.refuse("density", "a number above 0, at most 1");
  return density;
}

}  // namespace linerate::compress
