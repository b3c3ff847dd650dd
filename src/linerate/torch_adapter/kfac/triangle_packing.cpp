#include "linerate/torch_adapter/kfac/triangle_packing.hpp"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/triu_indices.h>
#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"

namespace linerate::torch_adapter {
namespace {

/// Rows of `from` may be apart and its columns too.
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

/// Mirrored in tiles: walking a single column would miss the cache at every element.
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

at::Tensor counting(std::int64_t d, const at::Tensor& like) {
  return at::arange(d, like.options().dtype(at::kLong));
}

/// Where (i, j) lies in a triangle of dimension d is at j more than this, of i <= j; it grows with
/// i.
at::Tensor begin_of_rows(const at::Tensor& i, std::int64_t d) {
  return (i * (2 * d - 1 - i)).div(2, "floor");
}

// Of any device, by the places of elements: made anew each time, for kept ones would take more
// memory than the factors.

void enqueue_pack(const at::Tensor& full, const at::Tensor& packed) {
  const std::int64_t groups = full.size(0), d = full.size(1);
  const at::Tensor ij = at::triu_indices(d, d, 0, full.options().dtype(at::kLong));
  packed.view({groups, -1}).copy_(full.flatten(1).index_select(1, ij[0] * d + ij[1]));
}

at::Tensor enqueue_unpack(const at::Tensor& packed, std::int64_t groups, std::int64_t d) {
  const at::Tensor i = counting(d, packed), begin = begin_of_rows(i, d);
  const at::Tensor places =
      at::minimum(begin.unsqueeze(1), begin).add_(at::maximum(i.unsqueeze(1), i));
  return packed.view({groups, -1}).index_select(1, places.flatten()).view({groups, d, d});
}

at::Tensor enqueue_traces(const at::Tensor& packed, std::int64_t groups, std::int64_t d) {
  const at::Tensor i = counting(d, packed);
  return packed.view({groups, -1})
      .index_select(1, begin_of_rows(i, d) + i)
      .sum(1, false, at::kDouble);
}

void check_packed(const at::Tensor& packed, std::int64_t groups, std::int64_t d) {
  LINERATE_CHECK(packed.numel() == groups * triangle_elements(d) && packed.is_contiguous(),
                 fmt::format("{} elements for {} triangles of {}", packed.numel(), groups, d));
}

}  // namespace

void pack_triangles(const at::Tensor& full, const at::Tensor& packed) {
  const std::int64_t groups = full.size(0), d = full.size(1);
  check_packed(packed, groups, d);
  LINERATE_CHECK(packed.scalar_type() == full.scalar_type(), "one type on both sides");
  if (!runs_on_host(full)) return enqueue_pack(full, packed);
  AT_DISPATCH_FLOATING_TYPES(full.scalar_type(), "pack_triangles", [&] {
    for (std::int64_t q = 0; q < groups; ++q)
      pack(full.const_data_ptr<scalar_t>() + q * full.stride(0), full.stride(1), full.stride(2), d,
           packed.mutable_data_ptr<scalar_t>() + q * triangle_elements(d));
  });
}

at::Tensor pack_triangles(const at::Tensor& full) {
  at::Tensor packed = at::empty({full.size(0) * triangle_elements(full.size(1))}, full.options());
  pack_triangles(full, packed);
  return packed;
}

at::Tensor unpack_triangles(const at::Tensor& packed, std::int64_t groups, std::int64_t d) {
  check_packed(packed, groups, d);
  if (!runs_on_host(packed)) return enqueue_unpack(packed, groups, d);
  at::Tensor full = at::empty({groups, d, d}, packed.options());
  AT_DISPATCH_FLOATING_TYPES(packed.scalar_type(), "unpack_triangles", [&] {
    for (std::int64_t q = 0; q < groups; ++q)
      unpack(packed.const_data_ptr<scalar_t>() + q * triangle_elements(d), d,
             full.mutable_data_ptr<scalar_t>() + q * d * d);
  });
  return full;
}

at::Tensor packed_traces(const at::Tensor& packed, std::int64_t groups, std::int64_t d) {
  check_packed(packed, groups, d);
  if (!runs_on_host(packed)) return enqueue_traces(packed, groups, d);
  at::Tensor traces = at::empty({groups}, packed.options().dtype(at::kDouble));
  AT_DISPATCH_FLOATING_TYPES(packed.scalar_type(), "packed_traces", [&] {
    const scalar_t* at_diagonal = packed.const_data_ptr<scalar_t>();
    for (std::int64_t q = 0; q < groups; ++q) {
      double sum = 0;
      for (std::int64_t left = d; left > 0; at_diagonal += left--) sum += *at_diagonal;
      traces.mutable_data_ptr<double>()[q] = sum;
    }
  });
  return traces;
}

}  // namespace linerate::torch_adapter
