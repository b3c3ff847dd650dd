// Products of a matrix with few vectors, as low-rank methods need them. M is [rows][columns] of
// f32, row-major. Factors lie transposed, [rank][rows] and [rank][columns], so that each of their
// vectors is contiguous. Sums have one order whatever the processor's vectors: f32 within blocks,
// double over blocks. Errors are those of a few dozen f32 additions, whatever the size.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace linerate::compress {

struct MatrixView {
  const float* data;
  std::size_t rows, columns;
};

/// p[j][i] = sum over c of M[i][c] q[j][c]: M times each of q's vectors. `p_stride` elements lie
/// between p's vectors (rows of the whole matrix, if M is a strip of it).
class RightProduct {
 public:
  /// q[rank][columns].
  RightProduct(std::span<const float> q, std::size_t columns);
  void operator()(const MatrixView& m, float* p, std::size_t p_stride) const;

 private:
  std::size_t rank_, columns_, padded_;
  std::vector<float> q_;  // [rank][padded]: columns filled up with zeros to whole vectors
};

/// q[j][c] = sum over i of p[j][i] M[i][c]: M transposed times each of p's vectors. p[rank][rows].
/// `before(first, count)` comes just before elements [first, first + count) of M are read, each
/// once: what it writes to them is still in the cache.
using BeforeElements = std::function<void(std::size_t first, std::size_t count)>;
void left_product(const MatrixView& m, std::span<const float> p, std::span<float> q,
                  const BeforeElements& before = {});

/// out[i][c] = sum over j of p[j][i] q[j][c], j ascending. A result beyond the range of f32 becomes
/// the largest number there is. The projection of a matrix near that end may have one.
void write_product(std::span<const float> p, std::span<const float> q, std::size_t rows,
                   std::size_t columns, float* out);
/// m[i][c] -= the same, to the bit; of a strip of `rows` rows, whose p begins at p[j * p_stride].
void subtract_product(const float* p, std::size_t p_stride, std::span<const float> q,
                      std::size_t rows, std::size_t columns, float* m);

/// Sum of a[i] b[i].
double dot(std::span<const double> a, std::span<const double> b);
/// a[i] -= factor b[i].
void subtract_multiple(std::span<double> a, double factor, std::span<const double> b);

}  // namespace linerate::compress
