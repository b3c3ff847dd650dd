// Tall and thin matrix products. Compiled once per instruction set, picked at run time. Products
// and sums stay two operations each: not every instruction set has a fused one, and all must give
// the same bits. The matrix is read once from memory, and that decides the time.
//
// Right product, P = M Q: each element is a dot product of a row with one of q's vectors. A dot
// product has 16 partial sums in f32 over 2,048 columns, so 128 terms each. Their fold is added to
// a double. Two rows and four vectors are worked on together, so that a loaded number is used
// several times.
//
// Left product, Q = M^T P: each row of M times its element of p is added to a row of sums. The sums
// of 1,024 columns stay in the cache, in f32, for 256 rows. They are then added to doubles.
//
// So an f32 sum never has more than a few hundred terms, and the error does not grow with the
// matrix.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/low_rank.cpp"
#include "linerate/compress/kernel/fixed_lanes-inl.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "linerate/compress/kernel/kernels.hpp"

#ifndef LINERATE_COMPRESS_LOW_RANK_SIZES  // the file is included several times
#define LINERATE_COMPRESS_LOW_RANK_SIZES
namespace linerate::compress {
inline constexpr std::size_t kDotLanes = 16;        // partial sums of a dot product
inline constexpr std::size_t kColumnBlock = 2048;   // of a right product: 128 terms a lane in f32
inline constexpr std::size_t kStripColumns = 1024;  // of a left product: its sums stay in the cache
inline constexpr std::size_t kStripRows = 256;
inline constexpr std::size_t kRowsAtOnce = 4;
}  // namespace linerate::compress
#endif

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {

/// Partial sums of two rows with kRanks vectors.
template <std::size_t kRanks>
using DotLanes = std::array<std::array<std::array<float, kDotLanes>, kRanks>, 2>;

/// Adds `steps` times 16 columns to the partial sums.
template <std::size_t kRanks>
void add_dots(const float* row0, const float* row1, const float* q, std::size_t q_stride,
              std::size_t steps, DotLanes<kRanks>& lanes) {
  for (std::size_t lane = 0; lane < kDotLanes; lane += kLanes) {
    Floats sum0[kRanks], sum1[kRanks];
    for (std::size_t j = 0; j < kRanks; ++j) {
      sum0[j] = hn::LoadU(kFloats, lanes[0][j].data() + lane);
      sum1[j] = hn::LoadU(kFloats, lanes[1][j].data() + lane);
    }
    for (std::size_t c = lane; c < steps * kDotLanes; c += kDotLanes) {
      const auto m0 = hn::LoadU(kFloats, row0 + c), m1 = hn::LoadU(kFloats, row1 + c);
      for (std::size_t j = 0; j < kRanks; ++j) {
        const auto factor = hn::LoadU(kFloats, q + j * q_stride + c);
        sum0[j] = hn::Add(sum0[j], hn::Mul(m0, factor));
        sum1[j] = hn::Add(sum1[j], hn::Mul(m1, factor));
      }
    }
    for (std::size_t j = 0; j < kRanks; ++j) {
      hn::StoreU(sum0[j], kFloats, lanes[0][j].data() + lane);
      hn::StoreU(sum1[j], kFloats, lanes[1][j].data() + lane);
    }
  }
}

/// The sum of the 16 lanes, in one order. Lanes i and i + 8 are added, then i and i + 4, then the
/// four that are left.
inline float folded(std::array<float, kDotLanes> lanes) {
  for (std::size_t l = 0; l < 8; ++l) lanes[l] += lanes[l + 8];
  for (std::size_t l = 0; l < 4; ++l) lanes[l] += lanes[l + 4];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

/// All columns of two rows. If the rows are one and the same, so are the answers.
template <std::size_t kRanks>
void dots(const float* row0, const float* row1, std::size_t columns, const float* q,
          std::size_t q_stride, std::array<std::array<double, kRanks>, 2>& out) {
  out = {};
  for (std::size_t c = 0; c < columns; c += kColumnBlock) {
    const std::size_t count = std::min(kColumnBlock, columns - c);
    const std::size_t whole = count / kDotLanes * kDotLanes;
    DotLanes<kRanks> lanes = {};
    add_dots<kRanks>(row0 + c, row1 + c, q + c, q_stride, whole / kDotLanes, lanes);
    if (whole < count) {
      Rest<const float, kDotLanes> rest0(row0 + c + whole, count - whole);
      Rest<const float, kDotLanes> rest1(row1 + c + whole, count - whole);
      add_dots<kRanks>(rest0.data(), rest1.data(), q + c + whole, q_stride, 1, lanes);
    }
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t j = 0; j < kRanks; ++j)
        out[row][j] += static_cast<double>(folded(lanes[row][j]));
  }
}

template <std::size_t kRanks>
void right_product_of(const float* m, std::size_t rows, std::size_t columns, const float* q,
                      std::size_t q_stride, float* p, std::size_t p_stride) {
  std::array<std::array<double, kRanks>, 2> sums;
  for (std::size_t i = 0; i < rows; i += 2) {
    const std::size_t next = std::min(i + 1, rows - 1);
    dots<kRanks>(m + i * columns, m + next * columns, columns, q, q_stride, sums);
    for (std::size_t j = 0; j < kRanks; ++j) {
      p[j * p_stride + i] = static_cast<float>(sums[0][j]);
      p[j * p_stride + next] = static_cast<float>(sums[next - i][j]);
    }
  }
}

/// Calls work(ranks' number as a constant, first vector) for four vectors at a time, then for those
/// that are left.
template <class Work>
void by_four(std::size_t ranks, Work&& work) {
  std::size_t j = 0;
  for (; j + 4 <= ranks; j += 4) work(std::integral_constant<std::size_t, 4>(), j);
  if (ranks - j == 3) work(std::integral_constant<std::size_t, 3>(), j);
  if (ranks - j == 2) work(std::integral_constant<std::size_t, 2>(), j);
  if (ranks - j == 1) work(std::integral_constant<std::size_t, 1>(), j);
}

void right_product_ranks(const float* m, std::size_t rows, std::size_t columns, const float* q,
                         std::size_t q_stride, std::size_t ranks, float* p, std::size_t p_stride) {
  by_four(ranks, [&](auto count, std::size_t j) {
    right_product_of<count>(m, rows, columns, q + j * q_stride, q_stride, p + j * p_stride,
                            p_stride);
  });
}

/// sums[j][c] += the four rows' share, j < kRanks; p[row][j].
template <std::size_t kRanks, class D>
std::size_t add_rows(D d, const std::array<const float*, kRowsAtOnce>& rows,
                     const std::array<std::array<float, kRanks>, kRowsAtOnce>& p, std::size_t c,
                     std::size_t columns, float* sums, std::size_t stride) {
  using V = hn::Vec<D>;
  V factor[kRowsAtOnce][kRanks];
  for (std::size_t r = 0; r < kRowsAtOnce; ++r)
    for (std::size_t j = 0; j < kRanks; ++j) factor[r][j] = hn::Set(d, p[r][j]);
  for (; c + hn::Lanes(d) <= columns; c += hn::Lanes(d)) {
    const V m0 = hn::LoadU(d, rows[0] + c), m1 = hn::LoadU(d, rows[1] + c);
    const V m2 = hn::LoadU(d, rows[2] + c), m3 = hn::LoadU(d, rows[3] + c);
    for (std::size_t j = 0; j < kRanks; ++j) {
      const V first = hn::Add(hn::Mul(factor[0][j], m0), hn::Mul(factor[1][j], m1));
      const V second = hn::Add(hn::Mul(factor[2][j], m2), hn::Mul(factor[3][j], m3));
      float* sum = sums + j * stride + c;
      hn::StoreU(hn::Add(hn::LoadU(d, sum), hn::Add(first, second)), d, sum);
    }
  }
  return c;
}

/// Four rows at a time. In place of rows after the last, any row times zero is added, so that one
/// loop serves all.
template <std::size_t kRanks>
void left_product_strip(const float* m, std::size_t rows, std::size_t row_stride,
                        std::size_t columns, const float* p, std::size_t p_stride, float* sums) {
  for (std::size_t i = 0; i < rows; i += kRowsAtOnce) {
    std::array<const float*, kRowsAtOnce> four;
    std::array<std::array<float, kRanks>, kRowsAtOnce> factor{};
    for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
      const bool is_there = i + r < rows;  // else any row, times zero
      four[r] = m + (is_there ? i + r : i) * row_stride;
      for (std::size_t j = 0; is_there && j < kRanks; ++j) factor[r][j] = p[j * p_stride + i + r];
    }
    const std::size_t done =
        add_rows<kRanks>(kFloats, four, factor, 0, columns, sums, kStripColumns);
    add_rows<kRanks>(hn::CappedTag<float, 1>(), four, factor, done, columns, sums, kStripColumns);
  }
}

void left_product_ranks(const float* m, std::size_t rows, std::size_t row_stride,
                        std::size_t columns, const float* p, std::size_t p_stride,
                        std::size_t ranks, float* sums) {
  by_four(ranks, [&](auto count, std::size_t j) {
    left_product_strip<count>(m, rows, row_stride, columns, p + j * p_stride, p_stride,
                              sums + j * kStripColumns);
  });
}

/// kRows rows of a product from column c on, kVectors vectors at a time; returns where it ends.
/// Rows together read q once for all of them.
template <bool kSubtract, std::size_t kRows, std::size_t kVectors, class D>
std::size_t product_block(D d, const float* p, std::size_t p_stride, const float* q,
                          std::size_t ranks, std::size_t c, std::size_t columns, float* out) {
  using V = hn::Vec<D>;
  const std::size_t lanes = hn::Lanes(d);
  const V highest = hn::Set(d, std::numeric_limits<float>::max()), lowest = hn::Neg(highest);
  for (; c + kVectors * lanes <= columns; c += kVectors * lanes) {
    V sum[kRows][kVectors];
    for (std::size_t row = 0; row < kRows; ++row)
      for (std::size_t k = 0; k < kVectors; ++k) sum[row][k] = hn::Zero(d);
    for (std::size_t j = 0; j < ranks; ++j)
      for (std::size_t k = 0; k < kVectors; ++k) {
        const V factor = hn::LoadU(d, q + j * columns + c + k * lanes);
        for (std::size_t row = 0; row < kRows; ++row) {
          const V term = hn::Mul(hn::Set(d, p[j * p_stride + row]), factor);
          sum[row][k] = j == 0 ? term : hn::Add(sum[row][k], term);
        }
      }
    for (std::size_t row = 0; row < kRows; ++row)
      for (std::size_t k = 0; k < kVectors; ++k) {
        float* at = out + row * columns + c + k * lanes;
        V result = sum[row][k];
        if constexpr (kSubtract) result = hn::Sub(hn::LoadU(d, at), result);
        hn::StoreU(hn::Min(hn::Max(result, lowest), highest), d, at);
      }
  }
  return c;
}

template <bool kSubtract, std::size_t kRows>
void product_rows(const float* p, std::size_t p_stride, const float* q, std::size_t ranks,
                  std::size_t columns, float* out) {
  const hn::CappedTag<float, 1> one;
  std::size_t c =
      product_block<kSubtract, kRows, 2>(kFloats, p, p_stride, q, ranks, 0, columns, out);
  c = product_block<kSubtract, kRows, 1>(kFloats, p, p_stride, q, ranks, c, columns, out);
  product_block<kSubtract, kRows, 1>(one, p, p_stride, q, ranks, c, columns, out);
}

template <bool kSubtract>
void product_all(const float* p, std::size_t p_stride, const float* q, std::size_t ranks,
                 std::size_t rows, std::size_t columns, float* out) {
  std::size_t i = 0;
  for (; i + kRowsAtOnce <= rows; i += kRowsAtOnce)
    product_rows<kSubtract, kRowsAtOnce>(p + i, p_stride, q, ranks, columns, out + i * columns);
  for (; i < rows; ++i)
    product_rows<kSubtract, 1>(p + i, p_stride, q, ranks, columns, out + i * columns);
}
void product_of(const float* p, std::size_t p_stride, const float* q, std::size_t ranks,
                std::size_t rows, std::size_t columns, bool subtracts, float* out) {
  subtracts ? product_all<true>(p, p_stride, q, ranks, rows, columns, out)
            : product_all<false>(p, p_stride, q, ranks, rows, columns, out);
}

double dot(std::span<const double> a, std::span<const double> b) {
  Sums16 sums;
  const auto add = [&](const double* x, const double* y) HWY_ATTR {
    for (std::size_t at = 0; at < 16 / kLanes; ++at, x += kLanes, y += kLanes)
      sums.add(at, multiply(load(x), load(y)));
  };
  in_steps<16>(a.size(), add, a.data(), b.data());
  return sums.total();
}

void subtract_multiple(std::span<double> a, double factor, std::span<const double> b) {
  const auto by = hn::Set(kDoubles, factor);
  const auto subtract = [=](double* x, const double* y) HWY_ATTR {
    const auto part = hn::Mul(by, hn::LoadU(kDoubles, y));
    hn::StoreU(hn::Sub(hn::LoadU(kDoubles, x), part), kDoubles, x);
  };
  in_steps<hn::MaxLanes(kDoubles)>(a.size(), subtract, a.data(), b.data());
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(right_product_ranks);
HWY_EXPORT(left_product_ranks);
HWY_EXPORT(product_of);
LINERATE_KERNEL(double, dot, (std::span<const double> a, std::span<const double> b), a, b)
LINERATE_KERNEL(void, subtract_multiple,
                (std::span<double> a, double factor, std::span<const double> b), a, factor, b)

RightProduct::RightProduct(std::span<const float> q, std::size_t columns)
    : rank_(q.size() / columns),
      columns_(columns),
      padded_((columns + kDotLanes - 1) / kDotLanes * kDotLanes),
      q_(rank_ * padded_) {
  for (std::size_t j = 0; j < rank_; ++j)
    std::copy_n(q.data() + j * columns, columns, q_.data() + j * padded_);
}

void RightProduct::operator()(const MatrixView& m, float* p, std::size_t p_stride) const {
  HWY_DYNAMIC_DISPATCH(right_product_ranks)
  (m.data, m.rows, columns_, q_.data(), padded_, rank_, p, p_stride);
}

void left_product(const MatrixView& m, std::span<const float> p, std::span<float> q,
                  const BeforeElements& before) {
  // The rows that a caller's `before` and the product share in the second-level cache.
  constexpr std::size_t kPreparedRows = 32;
  static_assert(kPreparedRows % kRowsAtOnce == 0 && kStripRows % kPreparedRows == 0);
  const std::size_t rank = p.size() / m.rows;
  std::vector<double> total(q.size());
  std::vector<float> part(rank * kStripColumns);
  for (std::size_t i = 0; i < m.rows; i += kStripRows) {
    const std::size_t rows = std::min(kStripRows, m.rows - i);
    for (std::size_t c = 0; c < m.columns; c += kStripColumns) {
      const std::size_t columns = std::min(kStripColumns, m.columns - c);
      std::fill(part.begin(), part.end(), 0.0f);
      for (std::size_t r = i; r < i + rows; r += kPreparedRows) {
        const std::size_t some = std::min(kPreparedRows, i + rows - r);
        for (std::size_t row = r; before && row < r + some; ++row)
          before(row * m.columns + c, columns);
        HWY_DYNAMIC_DISPATCH(left_product_ranks)
        (m.data + r * m.columns + c, some, m.columns, columns, p.data() + r, m.rows, rank,
         part.data());
      }
      for (std::size_t j = 0; j < rank; ++j)
        for (std::size_t k = 0; k < columns; ++k)
          total[j * m.columns + c + k] += static_cast<double>(part[j * kStripColumns + k]);
    }
  }
  for (std::size_t k = 0; k < q.size(); ++k) q[k] = static_cast<float>(total[k]);
}

void write_product(std::span<const float> p, std::span<const float> q, std::size_t rows,
                   std::size_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(product_of)
  (p.data(), rows, q.data(), q.size() / columns, rows, columns, false, out);
}

void subtract_product(const float* p, std::size_t p_stride, std::span<const float> q,
                      std::size_t rows, std::size_t columns, float* m) {
  HWY_DYNAMIC_DISPATCH(product_of)
  (p, p_stride, q.data(), q.size() / columns, rows, columns, true, m);
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
