// Symmetric matrices as their upper triangles: the form in which factors are kept and sent, and
// inverses sent. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace linerate::torch_adapter {

/// d (d + 1) / 2.
constexpr std::int64_t triangle_elements(std::int64_t d) { return d * (d + 1) / 2; }

/// full[i] [groups, d, d] -> packed[i] [groups * triangle_elements(d)]. Upper triangles are packed
/// row by row with their diagonals. Element (i, j), i <= j, is at i d - i (i - 1) / 2 + j - i.
/// Elements below the diagonal are not read. `packed` may be views of a longer buffer, without
/// gaps, of the same type. On a device matrices of one size are packed together.
void pack_triangles(std::span<const at::Tensor> full, std::span<const at::Tensor> packed);
void pack_triangles(const at::Tensor& full, const at::Tensor& packed);
at::Tensor pack_triangles(const at::Tensor& full);

/// The symmetric matrices, of all arguments one after the other, [matrices, d, d], contiguous.
at::Tensor unpack_triangles(std::span<const at::Tensor> packed, std::int64_t d);
at::Tensor unpack_triangles(const at::Tensor& packed, std::int64_t groups, std::int64_t d);

/// Sum of each matrix's diagonal, of all arguments one after the other, [matrices] f64.
at::Tensor packed_traces(std::span<const at::Tensor> packed, std::int64_t d);

}  // namespace linerate::torch_adapter
