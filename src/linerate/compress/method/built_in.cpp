#include "linerate/compress/method/built_in.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "linerate/compress/host_ops.hpp"

namespace linerate::compress {

std::unique_ptr<const Compressor> built_in(BuiltInMethod method) {
  return std::make_unique<BuiltIn>(std::move(method),
                                   [](const Shape& shape, const CodecChoice& choice) {
                                     return made_of<HostOps>({shape}, choice);
                                   });
}

std::function<std::vector<Round>(const Shape&, int)> one_round(
    std::function<Round(std::int64_t elements)> round) {
  return [round = std::move(round)](const Shape& shape, int) {
    return one_round_if_smaller(shape, round(shape.elements));
  };
}

/// dense_below: a dense tensor would need an all-reduce of its own, because these sum 16 bits.
std::unique_ptr<const Compressor> half_precision(DType half) {
  return built_in({.rounds = one_round([half](std::int64_t n) {
                     return Round{Combine::sum, half, 2 * n};
                   }),
                   .choice = CodecWith<HalfCodec, DType>{{half}},
                   .residual = Residual::optional,
                   .dense_below = 0});
}

std::unique_ptr<const Compressor> grid_codes(const GridFormat& format) {
  return built_in(
      {.rounds = one_round([format](std::int64_t n) { return gathered(bytes_of(format, n)); }),
       .choice = format,
       .residual = format.residual,
       .is_unbiased = format.unbiased});
}

std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format) {
  return built_in(
      {.rounds = one_round([format](std::int64_t n) { return gathered(bytes_of(format, n)); }),
       .choice = format});
}

// Sizes of formats.

std::int64_t heads_bytes(const GridFormat& format, std::int64_t n) {
  const std::int64_t buckets =
      format.bucket ? ceil_div(n, static_cast<std::int64_t>(format.bucket)) : 1;
  return 4 * static_cast<std::int64_t>(format.head_size) * buckets;
}

std::int64_t bytes_of(const GridFormat& format, std::int64_t n) {
  return heads_bytes(format, n) + pad4(ceil_div(n * format.bits, 8));
}

float round_up(double value) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (value >= kLargest) return kLargest;
  const auto nearest = static_cast<float>(value);
  return nearest < value ? std::nextafter(nearest, kLargest) : nearest;
}

std::int64_t bytes_of(const SignFormat& format, std::int64_t n) {
  const std::int64_t blocks = n == 0 ? 0 : format.block > 0 ? ceil_div(n, format.block) : 1;
  return 4 * levels_per_block(format.rule) * blocks + 4 * ceil_div(n, 32);
}

// Options that methods share.

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
