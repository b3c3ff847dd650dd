// Scalar twins of the low-rank methods in double: plain loops over matrices of columns.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "linerate/core/random.hpp"

namespace linerate::compress::oracle {

/// [columns][n]: a vector of columns.
using Columns = std::vector<std::vector<double>>;
struct Matrix {
  std::size_t rows, columns;
  std::vector<double> at;  // row-major
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), at(r * c) {}
  Matrix(std::size_t r, std::size_t c, const std::vector<float>& values)
      : rows(r), columns(c), at(values.begin(), values.end()) {}
};

inline Columns times(const Matrix& m, const Columns& q) {
  Columns p(q.size(), std::vector<double>(m.rows));
  for (std::size_t j = 0; j < q.size(); ++j)
    for (std::size_t i = 0; i < m.rows; ++i)
      for (std::size_t c = 0; c < m.columns; ++c) p[j][i] += m.at[i * m.columns + c] * q[j][c];
  return p;
}
inline Columns transposed_times(const Matrix& m, const Columns& p) {
  Columns q(p.size(), std::vector<double>(m.columns));
  for (std::size_t j = 0; j < p.size(); ++j)
    for (std::size_t i = 0; i < m.rows; ++i)
      for (std::size_t c = 0; c < m.columns; ++c) q[j][c] += m.at[i * m.columns + c] * p[j][i];
  return q;
}
inline Matrix product(const Columns& p, const Columns& q) {
  Matrix m(p[0].size(), q[0].size());
  for (std::size_t j = 0; j < p.size(); ++j)
    for (std::size_t i = 0; i < m.rows; ++i)
      for (std::size_t c = 0; c < m.columns; ++c) m.at[i * m.columns + c] += p[j][i] * q[j][c];
  return m;
}

/// Orthonormal basis by Householder reflections, applied to unit vectors: another algorithm than
/// the codec's, of the same span.
inline Columns householder_basis(Columns a) {
  const std::size_t n = a[0].size(), rank = a.size();
  std::vector<std::vector<double>> reflections;
  const auto reflect = [&](const std::vector<double>& v, std::vector<double>& x) {
    double inner = 0;
    for (std::size_t i = 0; i < n; ++i) inner += v[i] * x[i];
    for (std::size_t i = 0; i < n; ++i) x[i] -= 2 * inner * v[i];
  };
  for (std::size_t j = 0; j < rank; ++j) {
    std::vector<double> v = a[j];
    for (std::size_t i = 0; i < j; ++i) v[i] = 0;
    double norm = 0;
    for (const double x : v) norm += x * x;
    norm = std::sqrt(norm);
    v[j] += v[j] < 0 ? -norm : norm;
    double length = 0;
    for (const double x : v) length += x * x;
    for (double& x : v) x /= std::sqrt(length);
    for (std::size_t k = j; k < rank; ++k) reflect(v, a[k]);
    reflections.push_back(v);
  }
  Columns basis(rank, std::vector<double>(n));
  for (std::size_t j = 0; j < rank; ++j) {
    basis[j][j] = 1;
    for (std::size_t k = rank; k-- > 0;) reflect(reflections[k], basis[j]);
  }
  return basis;
}

/// Uniform in [-1, 1), as the shared stream gives vector j of a factor.
inline Columns random_factor(std::uint64_t key, std::size_t rank, std::size_t n) {
  Columns all(rank, std::vector<double>(n));
  for (std::size_t j = 0; j < rank; ++j)
    for (std::size_t i = 0; i < n; ++i)
      all[j][i] = static_cast<float>(2 * random_unit(random_key(key, j), i) - 1);
  return all;
}

}  // namespace linerate::compress::oracle
