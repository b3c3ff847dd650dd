// The same bits on every instruction set: what the sparse and low-rank methods send, and what their
// kernels give, compared with those of the set that this machine prefers. Casts are compared with
// scalar conversions.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "inputs.hpp"
#include "linerate/compress/cast.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "rank_group.hpp"
#include "support/instruction_sets.hpp"
#include "support/scalar_arithmetic.hpp"

namespace linerate::compress {
namespace {

/// Runs `work` once per instruction set and expects what the first run gave.
template <class Work>
void expect_equal_everywhere(Work work) {
  const auto expected = work();
  int sets = 0;
  on_each_instruction_set([&] {
    EXPECT_EQ(work(), expected);
    ++sets;
  });
  EXPECT_GE(sets, 1);
}

TEST(InstructionSets, MomentsAreTheSame) {
  for (const std::size_t n : {1u, 31u, 100u, 5003u}) {
    const std::vector<float> v = noise(n, 1);
    expect_equal_everywhere([&] {
      Moments all;
      LogSum logs;
      all.add(v), logs.add(v);
      const TailFit tail = tail_of(v, 0x3f800000);  // from 1 up
      return std::vector<double>{all.mean(),        all.variance(),   all.largest(),
                                 1.0 * all.count(), tail.mean_excess, tail.variance,
                                 logs.sum(),        1.0 * tail.count, 1.0 * tail.smallest};
    });
  }
}

TEST(InstructionSets, ProductsAreTheSame) {
  const std::size_t rows = 37, columns = 2077, rank = 7;
  const auto m = noise(rows * columns, 1), q = noise(rank * columns, 2), p = noise(rank * rows, 3);
  expect_equal_everywhere([&] {
    std::vector<float> all(rank * rows + rank * columns + rows * columns);
    const auto out = std::span(all);
    RightProduct(q, columns)({m.data(), rows, columns}, out.data(), rows);
    left_product({m.data(), rows, columns}, p, out.subspan(rank * rows, rank * columns));
    write_product(p, q, rows, columns, out.data() + rank * (rows + columns));
    const std::vector<double> wide(m.begin(), m.end());
    all.push_back(static_cast<float>(dot(wide, wide)));
    return all;
  });
}

TEST(InstructionSets, PayloadsAreTheSame) {
  const Shape shape{9000, 90};
  for (const std::string& name : compressors().names()) {
    SCOPED_TRACE(name);
    const auto compressor = make_compressor(doc::parse_component(name));
    const bool keeps = compressor->residual() == Residual::needed;
    expect_equal_everywhere([&] {
      RankGroup two(*compressor, shape, 2, keeps);
      std::vector<Payload> all;
      for (std::uint64_t step = 0; step < 3; ++step) {
        const std::vector<float> mean = two.step(noise_of_ranks(9000, 2, step), step);
        for (const auto& round : two.sent()) all.insert(all.end(), round.begin(), round.end());
        const auto bytes = std::as_bytes(std::span(mean));
        all.emplace_back(bytes.begin(), bytes.end());
      }
      return all;
    });
  }
}

using Limits = std::numeric_limits<float>;

/// Of every magnitude, with what rounding may get wrong: halves between two neighbours, values
/// below and above the range, infinities, a NaN.
std::vector<float> awkward(std::size_t n) {
  std::vector<float> all = {0.0f, -0.0f, 1.0f, -1.0f, 65504.0f, 65520.0f, 1e-8f, 6e-8f, 1e30f};
  for (const float end : {Limits::max(), Limits::min(), Limits::denorm_min(), Limits::infinity(),
                          -Limits::infinity(), Limits::quiet_NaN()})
    all.push_back(end);
  for (const float beyond : {1.0f / 2048, 3.0f / 2048, 1.0f / 256}) all.push_back(1.0f + beyond);
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
