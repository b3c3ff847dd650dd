#include "linerate/comm/reduce_kernel.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "comm/communicator_suite.hpp"
#include "linerate/core/random.hpp"
#include "support/instruction_sets.hpp"
#include "support/scalar_arithmetic.hpp"

namespace linerate::comm {
namespace {

constexpr std::array kFloats = {DType::f32, DType::f64, DType::f16, DType::bf16};

std::vector<std::uint8_t> random_bytes(std::size_t n, std::uint64_t key) {
  std::vector<std::uint8_t> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(random_bits(key, i));
  return bytes;
}

/// The same bits in each element. Of a NaN only that it is one: its payload is the processor's
/// choice.
void expect_same(const std::vector<std::uint8_t>& found, const std::vector<std::uint8_t>& want,
                 DType dtype) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  const auto is_nan = [&](const auto& bytes, std::size_t i) {
    return std::isnan(suite::element_of(bytes.data(), dtype, static_cast<std::int64_t>(i)));
  };
  for (std::size_t i = 0; i < want.size() / size; ++i)
    if (is_nan(want, i)) {
      ASSERT_TRUE(is_nan(found, i)) << name_of(dtype) << " " << i;
    } else {
      ASSERT_EQ(0, std::memcmp(&found[i * size], &want[i * size], size))
          << name_of(dtype) << " element " << i << " of " << want.size() / size;
    }
}

/// Any bit pattern (infinities, subnormals and NaN among them), any tail: the vector form gives the
/// scalar twin's bits on each instruction set.
TEST(ReduceKernel, VectorFormEqualsItsScalarTwin) {
  on_each_instruction_set([] {
    for (const DType dtype : suite::kTypes) {
      for (const Reduce op : {Reduce::sum, Reduce::max, Reduce::min}) {
        for (const std::size_t n : {0u, 1u, 5u, 64u, 1021u, 65536u}) {
          const auto size = static_cast<std::size_t>(size_of(dtype));
          const auto a = random_bytes(n * size, 1), b = random_bytes(n * size, 2);
          std::vector<std::uint8_t> vector(n * size), scalar(n * size);
          reduce_into(vector.data(), a.data(), b.data(), n, dtype, op);
          reduce_into_scalar(scalar.data(), a.data(), b.data(), n, dtype, op);
          expect_same(vector, scalar, dtype);
          for (const bool left : {true, false}) {  // in place of either operand
            vector = left ? a : b;
            const auto& x = left ? vector : a;
            const auto& y = left ? b : vector;
            reduce_into(vector.data(), x.data(), y.data(), n, dtype, op);
            expect_same(vector, scalar, dtype);
          }
        }
      }
    }
  });
}

/// A product is rounded before it is added, on every processor: what is fused gives the bits of two
/// steps. The scalar twin's, for any bit pattern but NaN.
TEST(ReduceKernel, ScaledSumsRoundTwice) {
  for (const DType dtype : kFloats) {
    for (const std::size_t n : {0u, 1u, 5u, 64u, 1021u, 65536u}) {
      const auto size = static_cast<std::size_t>(size_of(dtype));
      const auto a = random_bytes(n * size, 1), b = random_bytes(n * size, 2);
      std::vector<std::uint8_t> fused(n * size), left(n * size), right(n * size);
      add_scaled_into(fused.data(), a.data(), 1.0 / 3, b.data(), 0.3, n, dtype);
      scale_into_scalar(left.data(), a.data(), 1.0 / 3, n, dtype);
      scale_into_scalar(right.data(), b.data(), 0.3, n, dtype);
      std::vector<std::uint8_t> scaled(n * size);
      scale_into(scaled.data(), a.data(), 1.0 / 3, n, dtype);
      expect_same(scaled, left, dtype);
      reduce_into_scalar(left.data(), left.data(), right.data(), n, dtype, Reduce::sum);
      expect_same(fused, left, dtype);
    }
  }
}

/// Widening is exact, so narrowing what was widened gives the same bits back: for all 65536
/// patterns but NaN.
TEST(ReduceKernel, SixteenBitTypesSurviveTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float_of_f16(half))) {
      ASSERT_EQ(f16_of_float(float_of_f16(half)), half);
    }
    if (!std::isnan(float_of_bf16(half))) {
      ASSERT_EQ(bf16_of_float(float_of_bf16(half)), half);
    }
  }
}

/// Ties go to the even neighbour. f16 at 1: spacing 2^-10, tie at 1 + 2^-11 -> 1 (even), at 1 + 3
/// 2^-11 -> 1 + 2^-9. bf16 at 1: spacing 2^-7. f16's largest is 65504, the tie to infinity 65520;
/// its smallest 2^-24, tie to zero 2^-25.
TEST(ReduceKernel, RoundsToNearestEven) {
  EXPECT_EQ(float_of_f16(f16_of_float(1 + 0x1p-11f)), 1);
  EXPECT_EQ(float_of_f16(f16_of_float(1 + 3 * 0x1p-11f)), 1 + 0x1p-9f);
  EXPECT_EQ(float_of_bf16(bf16_of_float(1 + 0x1p-8f)), 1);
  EXPECT_EQ(float_of_bf16(bf16_of_float(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);
  EXPECT_EQ(float_of_f16(f16_of_float(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(float_of_f16(f16_of_float(65520.0f))));
  EXPECT_EQ(float_of_f16(f16_of_float(0x1p-25f)), 0);
  EXPECT_EQ(float_of_f16(f16_of_float(0x1.8p-25f)), 0x1p-24f);
}

TEST(ReduceKernel, MaxAndMinHandANaNOn) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduce op : {Reduce::max, Reduce::min}) {
    std::vector<float> a(32, 1.0f), b(32, 2.0f), out(32);
    a[3] = b[20] = kNan;
    reduce_into(out.data(), a.data(), b.data(), out.size(), DType::f32, op);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i == 3 || i == 20);
  }
}

TEST(ReduceKernel, WholeNumbersWrap) {
  std::vector<std::uint8_t> a(40, 250), b(40, 10), out(40);
  reduce_into(out.data(), a.data(), b.data(), out.size(), DType::u8, Reduce::sum);
  EXPECT_EQ(out[0], 4);  // 260 mod 256
  EXPECT_EQ(out[39], 4);
}

}  // namespace
}  // namespace linerate::comm
