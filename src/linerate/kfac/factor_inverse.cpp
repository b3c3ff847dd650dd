// Inverses and eigendecompositions of factors, on a host matrix by matrix, on a device all of one
// size in a call. Success is a tensor of bools, because a device's host must not wait for it. A
// factor that fails keeps its old inverse (CurvatureBlock::take_inverses()).
#include "linerate/kfac/factor_inverse.hpp"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cholesky_inverse.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/block.hpp"

namespace linerate::torch_adapter {
namespace {

using doc::triangle_elements;

/// Whether all elements are finite: x - x is 0, or a NaN if x is not finite. There are several
/// sums, because with a single one each addition would wait for the one before.
template <typename T>
bool elements_finite(const T* x, std::int64_t n) {
  constexpr std::int64_t kSums = 256 / sizeof(T);
  std::array<T, kSums> sums{};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (std::int64_t k = 0; k < kSums; ++k) sums[to_index(k)] += x[i + k] - x[i + k];
  for (; i < n; ++i) sums[0] += x[i] - x[i];
  return std::accumulate(sums.begin(), sums.end(), T{0}) == 0;
}

at::Tensor eye_like(const at::Tensor& symmetric) {
  return at::eye(symmetric.size(-1), symmetric.options());
}

/// Inverts a matrix in its place by LAPACK's own routine, which takes a third of the time of a
/// device's two products. The result is symmetric bit for bit, and row by row in memory. An inverse
/// that another rank has sent lies the same way, and the order decides how products round.
bool invert_on_host(const at::Tensor& damped) {
  if (!all_finite(damped)) return false;
  const auto [lower, info] = at::linalg_cholesky_ex(damped, /*upper=*/false,
                                                    /*check_errors=*/false);
  if (info.item<int>() != 0) return false;
  damped.copy_(at::cholesky_inverse(lower).mT());
  return all_finite(damped);
}

/// The eigendecomposition of one matrix.
Solved eigen(const at::Tensor& symmetric) {
  const at::Tensor usable = at::isfinite(symmetric).all();  // or solvers may loop for ever
  try {
    const auto [values, vectors] = at::linalg_eigh(at::where(usable, symmetric, 0.0));
    const at::Tensor finite = at::isfinite(values).all().logical_and(at::isfinite(vectors).all());
    return {vectors.contiguous(), values.clamp_min(0), usable.logical_and(finite)};
  } catch (const c10::LinAlgError&) {  // the iteration did not converge
    return {symmetric, symmetric.select(-1, 0), at::zeros_like(usable)};
  }
}

}  // namespace

bool all_finite(const at::Tensor& tensor) {
  if (!runs_on_host(tensor)) return at::isfinite(tensor).all().item<bool>();
  const at::Tensor values = tensor.contiguous();
  bool finite = true;
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "all_finite", [&] {
    finite = elements_finite(values.const_data_ptr<scalar_t>(), values.numel());
  });
  return finite;
}

/// Finds infinities and NaNs by the largest magnitude of each tensor, in one pass.
at::Tensor which_are_finite(const std::vector<at::Tensor>& tensors) {
  if (!runs_on_host(tensors.front())) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return at::isfinite(at::stack(at::_foreach_norm(tensors, kInfinity)));
  }
  const at::Tensor finite = at::empty({static_cast<std::int64_t>(tensors.size())}, at::kBool);
  for (std::size_t k = 0; k < tensors.size(); ++k)
    finite.mutable_data_ptr<bool>()[k] = all_finite(tensors[k]);
  return finite;
}

// On a device (A + damping I) = L Lᵀ, and the inverse is the product of L^-1's transpose and L^-1.
// at::cholesky_inverse() would do, but it may look at its solver's status on the host.
Solved damped_inverses(const at::Tensor& symmetric, const at::Tensor& damping) {
  symmetric.diagonal(0, -2, -1).add_(damping.to(symmetric.scalar_type()).unsqueeze(-1));
  if (runs_on_host(symmetric)) {
    const at::Tensor succeeded = at::empty({symmetric.size(0)}, at::kBool);
    for (std::int64_t n = 0; n < symmetric.size(0); ++n)
      succeeded.mutable_data_ptr<bool>()[n] = invert_on_host(symmetric[n]);
    return {symmetric, {}, succeeded};
  }
  const auto [lower, info] = at::linalg_cholesky_ex(symmetric, /*upper=*/false,
                                                    /*check_errors=*/false);
  const at::Tensor root = at::linalg_solve_triangular(lower, eye_like(symmetric), /*upper=*/false);
  const at::Tensor matrices = at::matmul(root.mT(), root);
  const at::Tensor largest = matrices.abs().amax({1, 2});
  return {matrices, {}, info.eq(0).logical_and(at::isfinite(largest))};
}

Solved symmetric_eigen(const at::Tensor& symmetric) {
  std::vector<at::Tensor> vectors, values, succeeded;
  for (std::int64_t n = 0; n < symmetric.size(0); ++n) {
    const Solved one = eigen(symmetric[n]);
    vectors.push_back(one.matrices), values.push_back(one.values);
    succeeded.push_back(one.succeeded);
  }
  return {at::stack(vectors), at::stack(values), at::stack(succeeded)};
}

// A symmetric matrix of 4 rows has 10 different elements, which are sent row by row from the
// diagonal on:
//   0 1 2 3
//   . 4 5 6
//   . . 7 8
//   . . . 9
// Row i begins with its diagonal at i d - i (i - 1) / 2. So element (i, j) is at i (2 d - 1 - i) /
// 2 + j. For (1, 3) that is 3 + 3 = 6. The CPU copies row by row; a device gathers by a table of
// places that it computes.

namespace {

/// Packs one matrix, whose rows and columns may have any distance in memory.
template <typename T>
void pack(const T* from, std::int64_t row, std::int64_t column, std::int64_t d, T* to) {
  for (std::int64_t i = 0; i < d; ++i) {
    const T* const line = from + i * row;
    if (column == 1) {
      to = std::copy(line + i, line + d, to);
    } else {
      for (std::int64_t j = i; j < d; ++j) *to++ = line[j * column];
    }
  }
}

/// Copies the upper triangle into the lower one, tile by tile. Walking a single column would miss
/// the cache at every element.
template <typename T>
void mirror(T* full, std::int64_t d) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t top = 0; top < d; top += kTile)
    for (std::int64_t left = top; left < d; left += kTile)
      for (std::int64_t i = top; i < std::min(top + kTile, d); ++i)
        for (std::int64_t j = std::max(left, i + 1); j < std::min(left + kTile, d); ++j)
          full[j * d + i] = full[i * d + j];
}

template <typename T>
void unpack(const T* from, std::int64_t d, T* full) {
  for (std::int64_t i = 0; i < d; ++i) {
    std::copy(from, from + d - i, full + i * d + i);
    from += d - i;
  }
  mirror(full, d);
}

/// 0 to d - 1 as i32, which is enough for places in triangles and squares of up to 32,767 rows.
at::Tensor counting(std::int64_t d, const at::Tensor& like) {
  return at::arange(d, like.options().dtype(at::kInt));
}

/// Element (i, j), i <= j, of a triangle of dimension d is at this plus j. It grows with i.
at::Tensor begin_of_rows(const at::Tensor& i, std::int64_t d) {
  return (i * (2 * d - 1 - i)).div(2, "floor");
}

std::int64_t matrices_in(const at::Tensor& packed, std::int64_t d) {
  const std::int64_t matrices = packed.numel() / triangle_elements(d);
  LINERATE_CHECK(packed.numel() == matrices * triangle_elements(d) && packed.is_contiguous(),
                 fmt::format("{} elements for triangles of {}", packed.numel(), d));
  return matrices;
}

/// The triangles of all arguments, [matrices, triangle_elements(d)]; of one argument a view.
at::Tensor joined_triangles(std::span<const at::Tensor> packed, std::int64_t d) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& one : packed) parts.push_back(one.view({matrices_in(one, d), -1}));
  return joined(parts);
}

// For any device, by the places of elements. These are computed anew each time, because kept ones
// would take more memory than the factors.

/// Packs matrices of one size.
void enqueue_pack(const std::vector<at::Tensor>& full, const std::vector<at::Tensor>& packed) {
  const std::int64_t d = full.front().size(1);
  const at::Tensor ij = at::triu_indices(d, d, 0, full.front().options().dtype(at::kInt));
  const at::Tensor triangles = joined(full).flatten(1).index_select(1, ij[0] * d + ij[1]);
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const at::Tensor& one : full) {
    parts.push_back(triangles.narrow(0, begin, one.size(0)).flatten());
    begin += one.size(0);
  }
  at::_foreach_copy_(packed, parts);
}

at::Tensor enqueue_unpack(const at::Tensor& triangles, std::int64_t d) {
  const at::Tensor i = counting(d, triangles), begin = begin_of_rows(i, d);
  const at::Tensor places =
      at::minimum(begin.unsqueeze(1), begin).add_(at::maximum(i.unsqueeze(1), i));
  return triangles.index_select(1, places.flatten()).view({-1, d, d});
}

at::Tensor enqueue_means(const at::Tensor& triangles, std::int64_t d) {
  const at::Tensor i = counting(d, triangles);
  return triangles.index_select(1, begin_of_rows(i, d) + i).mean(1, false, at::kDouble);
}

void pack_one(const at::Tensor& full, const at::Tensor& packed) {
  const std::int64_t d = full.size(1);
  AT_DISPATCH_FLOATING_TYPES(full.scalar_type(), "pack_triangles", [&] {
    for (std::int64_t q = 0; q < full.size(0); ++q)
      pack(full.const_data_ptr<scalar_t>() + q * full.stride(0), full.stride(1), full.stride(2), d,
           packed.mutable_data_ptr<scalar_t>() + q * triangle_elements(d));
  });
}

}  // namespace

void pack_triangles(std::span<const at::Tensor> full, std::span<const at::Tensor> packed) {
  std::map<std::int64_t, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> there;
  for (std::size_t k = 0; k < full.size(); ++k) {
    const std::int64_t d = full[k].size(1);
    LINERATE_CHECK(matrices_in(packed[k], d) == full[k].size(0), "as many on both sides");
    LINERATE_CHECK(packed[k].scalar_type() == full[k].scalar_type(), "one type on both sides");
    if (runs_on_host(full[k])) {
      pack_one(full[k], packed[k]);
    } else {
      there[d].first.push_back(full[k]);
      there[d].second.push_back(packed[k]);
    }
  }
  for (const auto& [d, some] : there) enqueue_pack(some.first, some.second);
}

void pack_triangles(const at::Tensor& full, const at::Tensor& packed) {
  pack_triangles(std::span(&full, 1), std::span(&packed, 1));
}

at::Tensor pack_triangles(const at::Tensor& full) {
  at::Tensor packed = at::empty({full.size(0) * triangle_elements(full.size(1))}, full.options());
  pack_triangles(full, packed);
  return packed;
}

at::Tensor unpack_triangles(std::span<const at::Tensor> packed, std::int64_t d) {
  const at::Tensor triangles = joined_triangles(packed, d);
  if (!runs_on_host(triangles)) return enqueue_unpack(triangles, d);
  at::Tensor full = at::empty({triangles.size(0), d, d}, triangles.options());
  AT_DISPATCH_FLOATING_TYPES(triangles.scalar_type(), "unpack_triangles", [&] {
    for (std::int64_t q = 0; q < triangles.size(0); ++q)
      unpack(triangles.const_data_ptr<scalar_t>() + q * triangle_elements(d), d,
             full.mutable_data_ptr<scalar_t>() + q * d * d);
  });
  return full;
}

at::Tensor unpack_triangles(const at::Tensor& packed, std::int64_t groups, std::int64_t d) {
  LINERATE_CHECK(packed.numel() == groups * triangle_elements(d),
                 fmt::format("{} elements for {} triangles of {}", packed.numel(), groups, d));
  return unpack_triangles(std::span(&packed, 1), d);
}

at::Tensor mean_diagonals(std::span<const at::Tensor> packed, std::int64_t d) {
  const at::Tensor triangles = joined_triangles(packed, d);
  if (!runs_on_host(triangles)) return enqueue_means(triangles, d);
  at::Tensor means = at::empty({triangles.size(0)}, triangles.options().dtype(at::kDouble));
  AT_DISPATCH_FLOATING_TYPES(triangles.scalar_type(), "mean_diagonals", [&] {
    const scalar_t* at_diagonal = triangles.const_data_ptr<scalar_t>();
    for (std::int64_t q = 0; q < triangles.size(0); ++q) {
      double sum = 0;
      for (std::int64_t left = d; left > 0; at_diagonal += left--) sum += *at_diagonal;
      means.mutable_data_ptr<double>()[q] = sum / static_cast<double>(d);
    }
  });
  return means;
}

}  // namespace linerate::torch_adapter
