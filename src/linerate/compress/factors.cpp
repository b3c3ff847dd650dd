// The small dense algebra of PowerSGD and ACP-SGD on the host: random vectors, and Gram-Schmidt in
// double. A factor has a few vectors of some thousand elements, so this takes little time next to
// the products with the matrix (kernel/low_rank.hpp).
#include "linerate/compress/factors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "linerate/compress/kernel/low_rank.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {
namespace {

/// Vectors of a factor in double.
class Vectors {
 public:
  Vectors(std::span<const float> factor, std::size_t rank)
      : n_(factor.size() / rank), all_(factor.begin(), factor.end()) {}
  std::span<double> operator[](std::size_t j) { return std::span(all_).subspan(j * n_, n_); }
  double norm() const { return std::sqrt(dot(all_, all_)); }

 private:
  std::size_t n_;
  std::vector<double> all_;
};

/// Subtracts from vector j its parts along the vectors before it, twice. Then scales it to length
/// 1. If no more than `least` is left of it, it becomes zero and the answer is false.
bool orthonormalise_one(Vectors& vectors, std::size_t j, double least) {
  const std::span<double> v = vectors[j];
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < j; ++i) subtract_multiple(v, dot(v, vectors[i]), vectors[i]);
  const double norm = std::sqrt(dot(v, v));
  const bool is_there = norm > least && std::isfinite(norm);  // false for a NaN
  for (double& x : v) x = is_there ? x / norm : 0;
  return is_there;
}

template <class OnVanished>
/// Vector by vector, from the first. Example: (1, 0, 0), (1, 1, 0) and (2, 1, 0). The first stays.
/// The second becomes (0, 1, 0). The third is 2 times the first plus 1 times the second, so nothing
/// is left of it, and on_vanished() is called for number 2.
void orthonormalise_all(std::span<float> factor, std::size_t rank, OnVanished on_vanished) {
  Vectors vectors(factor, rank);
  const double least = kVanished * vectors.norm();
  const std::size_t n = factor.size() / rank;
  for (std::size_t j = 0; j < rank; ++j) {
    if (!orthonormalise_one(vectors, j, least)) on_vanished(vectors, j);
    const std::span<const double> v = vectors[j];
    std::transform(v.begin(), v.end(), factor.begin() + static_cast<std::ptrdiff_t>(j * n),
                   [](double x) { return static_cast<float>(x); });
  }
}

}  // namespace

std::int64_t read_rank(doc::OptionReader& options) {
  const std::int64_t rank = options.integer("rank", 4);
  if (rank < 1 || rank > 1024) options.refuse("rank", "a number from 1 to 1024");
  return rank;
}

std::int64_t rank_of(std::int64_t rank, const Shape& shape) {
  return std::min({rank, shape.rows, shape.columns()});
}

bool is_worth_factors(std::int64_t rank, const Shape& shape) {
  if (shape.rows < 2 || shape.columns() < 2) return false;
  return rank_of(rank, shape) * (shape.rows + shape.columns()) * 2 < shape.elements;
}

void fill_random(std::uint64_t key, std::size_t j, std::span<float> vector) {
  const std::uint64_t stream = random_key(key, j);
  for (std::size_t i = 0; i < vector.size(); ++i)
    vector[i] = static_cast<float>(2 * random_unit(stream, i) - 1);
}

std::vector<std::size_t> orthonormalise(std::span<float> factor, std::size_t rank) {
  std::vector<std::size_t> vanished;
  orthonormalise_all(factor, rank, [&](Vectors&, std::size_t j) { vanished.push_back(j); });
  return vanished;
}

void orthonormalise_fresh(std::span<float> factor, std::size_t rank, std::uint64_t key) {
  std::vector<float> fresh(factor.size() / rank);
  orthonormalise_all(factor, rank, [&](Vectors& vectors, std::size_t j) {
    // A random direction is almost never one of the others; another one is tried if it is.
    for (std::size_t trial = 0; trial < 8; ++trial) {
      fill_random(key, j + trial * rank, fresh);
      std::copy(fresh.begin(), fresh.end(), vectors[j].begin());
      if (orthonormalise_one(vectors, j, kVanished)) return;
    }
  });
}

/// Let F be the largest f32. A row of the matrix has length F sqrt(n) at most, so its product with
/// a unit vector is at most that. A sum over ranks is at most `ranks` times as much. Example: 3
/// ranks and n = 100 can exceed F by 30 times. The power of two that makes up for it is 1/32, and
/// the answer is 1/64: one more bit leaves room for rounding.
float headroom(int ranks, std::size_t n) {
  const double most = static_cast<double>(ranks) * std::sqrt(static_cast<double>(n));
  return static_cast<float>(std::exp2(-std::ceil(std::log2(most)) - 1));
}

}  // namespace linerate::compress
