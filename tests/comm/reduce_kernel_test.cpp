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

}  // namespace
}  // namespace linerate::comm
