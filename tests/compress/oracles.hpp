// Second implementations in double, without kernels, written from the formulas of the literature:
// what tests of one method share with the table of all methods (expectations.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "linerate/core/random.hpp"

namespace linerate::compress::oracle {

using Indices = std::vector<std::uint32_t>;

inline double magnitude(float x) { return std::abs(static_cast<double>(x)); }

/// The k largest magnitudes by a stable sort: ties by lower index. Ascending.
inline Indices largest(const std::vector<float>& v, std::size_t k) {
  Indices all(v.size());
  std::iota(all.begin(), all.end(), 0u);
  std::stable_sort(all.begin(), all.end(), [&](std::uint32_t a, std::uint32_t b) {
    return magnitude(v[a]) > magnitude(v[b]);
  });
  all.resize(k);
  std::sort(all.begin(), all.end());
  return all;
}

inline Indices at_least(const std::vector<float>& v, double tau) {
  Indices all;
  for (std::uint32_t i = 0; i < v.size(); ++i)
    if (magnitude(v[i]) >= tau) all.push_back(i);
  return all;
}

struct Fitted {
  double mean = 0, variance = 0, mean_log = 0;
};
inline Fitted fitted(const std::vector<double>& x) {
  Fitted f;
  const auto n = static_cast<double>(x.size());
  for (const double one : x) f.mean += one / n;
  for (const double one : x) f.variance += (one - f.mean) * (one - f.mean) / (n - 1);
  for (const double one : x) f.mean_log += std::log(one) / n;
  return f;
}

inline double exponential(const Fitted& f, double ratio) { return -f.mean * std::log(ratio); }
inline double pareto(const Fitted& f, double ratio) {
  const double kappa = 0.5 * (f.mean * f.mean / f.variance - 1);
  const double alpha = 0.5 * f.mean * (f.mean * f.mean / f.variance + 1);
  if (std::abs(kappa) < 1e-6) return -alpha * std::log(ratio);
  return alpha * (1 - std::pow(ratio, kappa)) / kappa;
}

/// SIDCo's threshold with a fixed number of stages; `first` and `tail` are its fits.
template <class First, class Tail>
double sidco_threshold(const std::vector<float>& v, double density, int stages, First first,
                       Tail tail) {
  std::vector<double> x;
  for (const float one : v)
    if (one != 0) x.push_back(magnitude(one));
  const double d =
      std::min(1.0, density * static_cast<double>(v.size()) / static_cast<double>(x.size()));
  if (d >= 0.25) stages = 1;
  double tau = first(fitted(x), stages == 1 ? d : 0.25);
  for (int stage = 1; stage < stages; ++stage) {
    std::vector<double> y;
    for (const double one : x)
      if (one > tau) y.push_back(one);
    if (y.size() < 2) break;
    const double m = *std::min_element(y.begin(), y.end());
    for (double& one : y) one -= m;
    for (double& one : y) one = std::max(one, 1e-300);  // for the logarithm, which no tail reads
    tau = m + tail(fitted(y), std::pow(d / 0.25, 1.0 / (stages - 1)));
  }
  return tau;
}

/// MSTop-K by its loop, every count over all of v. `random` in [0, 1) places the run.
inline Indices mstopk(const std::vector<float>& v, std::size_t k, int rounds, double random) {
  double mean = 0, most = 0;
  for (const float x : v) mean += magnitude(x) / static_cast<double>(v.size());
  for (const float x : v) most = std::max(most, magnitude(x));
  std::size_t k1 = 0, k2 = v.size();
  double tau1 = std::numeric_limits<double>::infinity(), tau2 = 0;
  const auto probe = [&](double tau) {
    const std::size_t c = at_least(v, tau).size();
    if (c <= k && c > k1) k1 = c, tau1 = tau;
    if (c > k && c < k2) k2 = c, tau2 = tau;
    return c;
  };
  if (most > 0) {
    const bool above = probe(mean) >= k;
    const double base = above ? mean : 0, top = above ? most : mean;
    double low = 0, high = 1;
    for (int i = 0; i < rounds && k1 != k; ++i) {
      const double ratio = (low + high) / 2;
      (probe(base + ratio * (top - base)) <= k ? high : low) = ratio;
    }
  }
  const Indices reached = at_least(v, k1 == k ? tau1 : tau2);
  const std::size_t candidates = reached.size() - k1, wanted = k - k1;
  const auto start =
      static_cast<std::size_t>(random * static_cast<double>(candidates - wanted + 1));
  Indices sent;
  std::size_t candidate = 0;
  for (const std::uint32_t i : reached) {
    if (magnitude(v[i]) >= tau1) {
      sent.push_back(i);
    } else {
      if (candidate >= start && candidate < start + wanted) sent.push_back(i);
      ++candidate;
    }
  }
  return sent;
}

// Products of thin matrices: plain loops over matrices of columns.

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
