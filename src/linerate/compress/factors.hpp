// PowerSGD and ACP-SGD share these parts: the test whether a matrix is worth factors, and random
// and orthonormal factors. A factor is [rank][n] of f32: a row is a column of the literature's
// matrix.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// The option rank=4; refuses what is not from 1 to 1024.
std::int64_t read_rank(doc::OptionReader& options);

/// min(rank, rows, columns).
std::int64_t rank_of(std::int64_t rank, const Shape& shape);
/// Vogels et al.'s rule: r (rows + columns) 2 < rows columns. Vectors are never worth it.
bool is_worth_factors(std::int64_t rank, const Shape& shape);

/// Floating point operations of `products` products of the matrix and a factor, and of making r
/// vectors of `length` elements orthonormal. They are 2 r rows columns for each product, and 2 r^2
/// length.
inline double flops_of_factors(std::int64_t rank, const Shape& shape, int products,
                               std::int64_t length) {
  const auto r = static_cast<double>(rank_of(rank, shape));
  return 2 * r * (products * static_cast<double>(shape.elements) + r * static_cast<double>(length));
}

/// Sizes of both factors of a matrix that is worth it: P[rank][rows] on its left, Q[rank][columns]
/// on its right.
struct FactorSize {
  std::int64_t rank = 0, rows = 0, columns = 0;
};
inline FactorSize factor_size_of(std::int64_t rank, const Shape& shape) {
  return {rank_of(rank, shape), shape.rows, shape.columns()};
}
enum class Side : std::uint8_t { left, right };
constexpr Side other(Side side) { return side == Side::left ? Side::right : Side::left; }

/// One of each side.
template <class T>
struct BySide {
  T left, right;
  T& operator[](Side side) { return side == Side::left ? left : right; }
  const T& operator[](Side side) const { return side == Side::left ? left : right; }
};

/// A factor on its way into payloads: M = gradient + residual times the other side's factor.
struct FactorPass {
  Side sent;
  bool adds_residual, keeps_rest;  // M is made in this pass; M - P^T Q stays as the residual
};
/// How the sum of all ranks' factors is read.
enum class Taken : std::uint8_t { sum, mean };

/// Vector j of a factor from the shared stream: uniform in [-1, 1), the same on every rank.
void fill_random(std::uint64_t key, std::size_t j, std::span<float> vector);

/// A vector vanished if it keeps no more than this part of its factor's Frobenius norm. That is
/// about ten roundings of the f32 products that a factor is made of.
inline constexpr double kVanished = 1e-6;

/// Makes a factor's vectors orthonormal, in double. From each vector its parts along those before
/// it are subtracted, twice (modified Gram-Schmidt; twice is enough: Giraud et al. 2005). Then it
/// is scaled to length 1. A vector with less than 1e-6 of the factor's Frobenius norm left depends
/// on the others, apart from rounding. It becomes zero, and its number is in the answer. Never a
/// NaN, whatever the factor holds.
std::vector<std::size_t> orthonormalise(std::span<float> factor, std::size_t rank);

/// As orthonormalise(), but each vector that vanished is replaced by a fresh direction of the
/// shared stream. So all vectors are orthonormal, and no direction stays zero for ever.
void orthonormalise_fresh(std::span<float> factor, std::size_t rank, std::uint64_t key);

/// A power of two, at most 1 / (ranks sqrt(n)). Unit vectors of n elements are multiplied by it
/// before the products with the matrix. Then sums of the products over `ranks` stay finite for each
/// matrix of finite f32 (by Cauchy and Schwarz).
float headroom(int ranks, std::size_t n);

// Thresholds from distributions fitted to magnitudes: SIDCo, Abdelmoniem et al. 2021 (MLSys, arXiv
// 2101.10761).

enum class TailDistribution : std::uint8_t { exponential, pareto, gamma };

/// Moments of magnitudes x > 0. The variance has divisor count - 1; only the Gamma fit reads
/// mean_log, the mean of ln x.
struct FitMoments {
  double mean = 0, variance = 0, mean_log = 0;
};

/// The magnitude that a share `ratio` of the fitted distribution exceeds, 0 < ratio <= 1. Not
/// finite if the moments fit none.
double fitted_threshold(TailDistribution fit, const FitMoments& x, double ratio);
/// As fitted_threshold(), for the excess y = x - m of a tail over its smallest member m. Magnitudes
/// beyond a threshold follow a generalised Pareto law in the limit. So the Gamma fit takes that law
/// here.
double fitted_excess(TailDistribution fit, const FitMoments& y, double ratio);

/// x with Q(a, x) = q, Q the regularised upper incomplete gamma function; a > 0, 0 < q <= 1. To
/// 1e-12 relative.
double inverse_upper_gamma(double a, double q);

}  // namespace linerate::compress
