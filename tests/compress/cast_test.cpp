#include "linerate/compress/cast.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "linerate/core/error.hpp"
#include "support/instruction_sets.hpp"
#include "support/scalar_arithmetic.hpp"

namespace linerate::compress {
namespace {

using Limits = std::numeric_limits<float>;

/// Of every magnitude, with what rounding may get wrong: halves between two neighbours, values
/// below and above the range, infinities, a NaN.
std::vector<float> awkward(std::size_t n) {
  std::vector<float> all = {0.0f,
                            -0.0f,
                            1.0f,
                            -1.0f,
                            65504.0f,
                            65520.0f,
                            1e-8f,
                            6e-8f,
                            1e30f,
                            Limits::max(),
                            Limits::min(),
                            Limits::denorm_min(),
                            Limits::infinity(),
                            -Limits::infinity(),
                            Limits::quiet_NaN(),
                            1.0f + 1.0f / 2048,
                            1.0f + 3.0f / 2048,
                            1.0f + 1.0f / 256};
  std::uint32_t bits = 1;
  while (all.size() < n) {
    bits = bits * 1664525u + 1013904223u;
    all.push_back(std::bit_cast<float>(bits));
  }
  all.resize(n);
  return all;
}

bool is_nan(std::uint16_t half, DType type) {
  return std::isnan(type == DType::f16 ? comm::float_of_f16(half) : comm::float_of_bf16(half));
}

/// There and back, as the scalar conversions have it.
void expect_cast(DType half, std::size_t n) {
  const std::vector<float> in = awkward(n);
  std::vector<std::uint16_t> narrow(n + 1, 0xabcd);
  cast(in.data(), DType::f32, narrow.data(), half, n);
  EXPECT_EQ(narrow[n], 0xabcd) << "written behind the end";
  std::vector<float> wide(n + 1, 42);
  cast(narrow.data(), half, wide.data(), DType::f32, n);
  EXPECT_EQ(wide[n], 42);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint16_t expected =
        half == DType::f16 ? comm::f16_of_float(in[i]) : comm::bf16_of_float(in[i]);
    if (is_nan(expected, half)) {
      EXPECT_TRUE(is_nan(narrow[i], half)) << in[i];
      EXPECT_TRUE(std::isnan(wide[i]));
      continue;
    }
    EXPECT_EQ(narrow[i], expected) << name_of(half) << " of " << in[i];
    EXPECT_EQ(wide[i],
              half == DType::f16 ? comm::float_of_f16(expected) : comm::float_of_bf16(expected));
  }
}

// Every length around that of a vector: whole vectors, and what is left behind them. Ties,
// denormals, infinities and NaN where an instruction rounds and where Highway's emulation would
// truncate (below AVX2).
TEST(Cast, ElementsAreThoseOfTheScalarConversionOnEveryInstructionSet) {
  on_each_instruction_set([] {
    for (const DType half : {DType::f16, DType::bf16})
      for (const std::size_t n : {0u, 1u, 7u, 8u, 15u, 16u, 17u, 33u, 1009u, 20011u})
        expect_cast(half, n);
  });
}

TEST(Cast, OtherTypesAreRefused) {
  double in = 1;
  std::uint16_t out = 0;
  EXPECT_FALSE(can_cast(DType::f64, DType::f16));
  EXPECT_THROW(cast(&in, DType::f64, &out, DType::f16, 1), UsageError);
  EXPECT_THROW(cast(&in, DType::f32, &out, DType::f32, 1), UsageError);
}

}  // namespace
}  // namespace linerate::compress
