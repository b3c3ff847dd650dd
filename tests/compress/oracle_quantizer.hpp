// Scalar twins of the codecs of signs, grids and powers, in f64 and without their kernels: what a
// rank's payload must decode to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "linerate/compress/cast.hpp"

namespace linerate::compress {

/// A value that is sent is one of two neighbours: `up` where the random number, or one half, says
/// so. Where that lies closer to the fraction than the codec's f32 is exact, both are right.
struct Neighbours {
  double lower, upper;
  bool up, both;
  bool allows(double sent, double tolerance) const {
    const bool is_lower = std::abs(sent - lower) <= tolerance;
    const bool is_upper = std::abs(sent - upper) <= tolerance;
    return both ? is_lower || is_upper : (up ? is_upper : is_lower);
  }
};

inline std::vector<float> bucket_of(const std::vector<float>& v, std::size_t i, std::size_t size) {
  const std::size_t first = i / size * size;
  return {v.begin() + static_cast<std::ptrdiff_t>(first),
          v.begin() + static_cast<std::ptrdiff_t>(std::min(v.size(), first + size))};
}

/// t units above `base`, rounded down or up; the codec knows t to 2^-20 of top or better.
inline Neighbours on_grid(double base, double unit, double t, int top, double threshold) {
  const double level = std::min(std::floor(t), static_cast<double>(top));
  const double next = std::min(level + 1, static_cast<double>(top));
  const double fraction = t - std::floor(t), slack = 0x1p-20 * top;
  // Just above a whole number or just below it, the codec may see the other.
  const bool both =
      std::abs(fraction - threshold) < slack || fraction < slack || fraction > 1 - slack;
  if (fraction > 1 - slack) return {base + next * unit, base + level * unit, false, true};
  return {base + level * unit, base + next * unit, threshold < fraction, both};
}

inline double uniform_of(std::uint64_t key, std::size_t i) {
  return static_cast<double>(rounding_bits(key, i) >> 8) * 0x1p-24;
}

/// QSGD of element i: floor(s |v| / N + u), with the sign.
inline Neighbours qsgd_oracle(const std::vector<float>& v, std::size_t i, int s, std::size_t d,
                              std::uint64_t key) {
  double squares = 0;
  for (const float x : bucket_of(v, i, d)) squares += static_cast<double>(x) * x;
  const double norm = std::sqrt(squares);
  if (norm == 0) return {0, 0, false, true};
  const double sign = v[i] < 0 ? -1 : 1;
  return on_grid(0, sign * norm / s, std::abs(static_cast<double>(v[i])) / norm * s, s,
                 uniform_of(key, i));
}

inline Neighbours maxmin_oracle(const std::vector<float>& v, std::size_t i, int bits,
                                bool stochastic, std::uint64_t key) {
  const std::vector<float> bucket = bucket_of(v, i, 512);
  const auto [least, largest] = std::minmax_element(bucket.begin(), bucket.end());
  const int top = (1 << bits) - 1;
  const double lo = *least, unit = (static_cast<double>(*largest) - lo) / top;
  if (unit == 0) return {lo, lo, false, true};
  return on_grid(lo, unit, (v[i] - lo) / unit, top, stochastic ? uniform_of(key, i) : 0.5);
}

inline Neighbours terngrad_oracle(const std::vector<float>& v, std::size_t i, double clip,
                                  std::uint64_t key) {
  double mean = 0, variance = 0, largest = 0;
  for (const float x : v) mean += x / static_cast<double>(v.size());
  for (const float x : v) variance += (x - mean) * (x - mean) / static_cast<double>(v.size());
  for (const float x : v) largest = std::max(largest, std::abs(static_cast<double>(x)));
  const double s = std::min(largest, clip * std::sqrt(variance));
  if (s == 0) return {0, 0, false, true};
  const double magnitude = std::min(s, std::abs(static_cast<double>(v[i])));
  const double sign = v[i] < 0 ? -1 : 1;
  return on_grid(0, sign * s, magnitude / s, 1, uniform_of(key, i));
}

/// 0 and the powers of two from 2^least to 2^127; exact, as 23 random bits and 23 of a mantissa
/// are.
inline Neighbours natural_oracle(double x, int least, std::uint64_t key, std::size_t i) {
  const double magnitude = std::abs(x), sign = x < 0 ? -1 : 1;
  const double random = static_cast<double>(rounding_bits(key, i) >> 9);  // of 2^23
  double lower = 0, upper = std::ldexp(1.0, least);
  if (magnitude >= upper) {
    lower = std::ldexp(1.0, std::ilogb(magnitude));
    upper = std::min(2 * lower, 0x1p127);
  }
  const double fraction = upper > lower ? (magnitude - lower) / (upper - lower) : 0;
  const bool up = std::floor(fraction * 0x1p23) + random >= 0x1p23;
  return {sign * lower, sign * upper, up, false};
}

/// What the signs of a tensor of one block stand for: {positive, negative}.
struct SignOracle {
  double positive, negative;
};
inline SignOracle mean_magnitude_oracle(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += std::abs(static_cast<double>(x));
  return {sum / static_cast<double>(v.size()), -sum / static_cast<double>(v.size())};
}
inline SignOracle root_mean_square_oracle(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * x;
  const double level = std::sqrt(sum / static_cast<double>(v.size()));
  return {level, -level};
}
inline SignOracle mean_of_class_oracle(const std::vector<float>& v) {
  double sums[2] = {}, counts[2] = {};
  for (const float x : v) sums[x < 0] += x, counts[x < 0] += 1;
  return {counts[0] ? sums[0] / counts[0] : 0, counts[1] ? sums[1] / counts[1] : 0};
}

}  // namespace linerate::compress
