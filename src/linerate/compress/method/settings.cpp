#include "linerate/compress/method/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "linerate/core/index.hpp"

namespace linerate::compress {

double read_density(doc::OptionReader& options) {
  const double density = options.number("density").value_or(0.01);
  if (!(density > 0 && density <= 1)) options.refuse("density", "a number above 0, at most 1");
  return density;
}

std::int64_t read_warm_up(doc::OptionReader& options, std::string_view key) {
  const std::int64_t steps = options.integer(key, 0);
  if (steps < 0) options.refuse(key, "0 or more steps");
  return steps;
}

std::vector<Phase> dense_warm_up(std::int64_t steps) {
  if (steps == 0) return {};
  return {{"dense", steps}};
}

double read_momentum(doc::OptionReader& options, std::string_view key, double otherwise) {
  const double beta = options.number(key).value_or(otherwise);
  if (!(beta >= 0 && beta < 1)) options.refuse(key, "a number of at least 0, below 1");
  return beta;
}

int read_bits(doc::OptionReader& options, std::initializer_list<int> allowed, int otherwise) {
  const std::int64_t bits = options.integer("bits", otherwise);
  if (std::find(allowed.begin(), allowed.end(), bits) == allowed.end())
    options.refuse("bits", fmt::format("one of {}", fmt::join(allowed, ", ")));
  return static_cast<int>(bits);
}

std::size_t read_bucket(doc::OptionReader& options, std::int64_t otherwise) {
  const std::int64_t bucket = options.integer("bucket", otherwise);
  if (bucket < 32 || bucket > 4096 || !std::has_single_bit(static_cast<std::uint64_t>(bucket)))
    options.refuse("bucket", "a power of two, 32 to 4096");
  return to_index(bucket);
}

}  // namespace linerate::compress
