// Symmetric matrices as their upper triangles: the form in which factors are kept and sent, and
// inverses sent. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace linerate::torch_adapter {

/// d (d + 1) / 2.
constexpr std::int64_t triangle_elements(std::int64_t d) { return d * (d + 1) / 2; }

/// full[groups, d, d] -> packed[groups * triangle_elements(d)]: row-major upper triangles with
/// diagonals; element (i, j), i <= j, at i d - i (i - 1) / 2 + j - i. Elements below the diagonal
/// are not read. `packed` may be a view of a longer buffer, without gaps, of the same type.
void pack_triangles(const at::Tensor& full, const at::Tensor& packed);
at::Tensor pack_triangles(const at::Tensor& full);

/// The symmetric matrices [groups, d, d], contiguous.
at::Tensor unpack_triangles(const at::Tensor& packed, std::int64_t groups, std::int64_t d);

/// Sum of each matrix's diagonal, [groups] f64.
at::Tensor packed_traces(const at::Tensor& packed, std::int64_t groups, std::int64_t d);

}  // namespace linerate::torch_adapter
