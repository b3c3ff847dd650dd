#include "linerate/compress/method/momentum.hpp"

#include <fmt/format.h>

namespace linerate::compress {

double read_momentum(doc::OptionReader& options, std::string_view key, double otherwise) {
  const double beta = options.number(key).value_or(otherwise);
  if (!(beta >= 0 && beta < 1)) options.refuse(key, "a number of at least 0, below 1");
  return beta;
}

}  // namespace linerate::compress
