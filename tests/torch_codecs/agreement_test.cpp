// The codecs over tensors against those of compress: the same payloads, means, residuals and state,
// bit for bit where they are said to be exact, else within a bound; each decodes the other's. It
// prints a table, and docs/compression.md has its summary.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compress/expectation.hpp"
#include "compress/inputs.hpp"
#include "compress/rank_group.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"
#include "torch_codecs/bounds.hpp"

namespace linerate::torch_codecs {
namespace {

using namespace compress;

constexpr int kRanksOfJob = 2;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  if (std::memcmp(a.data(), b.data(), 4 * a.size()) == 0) return most;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;  // infinities too
    const double apart = std::abs(static_cast<double>(a[i]) - b[i]);
    most = std::max(most, std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart);
  }
  return most;
}

/// How far means, residuals and states of two groups' ranks are apart, of `scale`.
double largest_difference(RankGroup& a, RankGroup& b, double scale) {
  double most = 0;
  for (int r = 0; r < kRanksOfJob; ++r) {
    most = std::max({most, largest_difference(a.mean(r), b.mean(r)),
                     largest_difference(a.residual(r), b.residual(r))});
    const SavedState of_a = a.codec(r).save(), of_b = b.codec(r).save();
    EXPECT_EQ(of_a.size(), of_b.size());
    for (std::size_t f = 0; f < std::min(of_a.size(), of_b.size()); ++f) {
      EXPECT_EQ(of_a[f].name, of_b[f].name);
      EXPECT_EQ(of_a[f].passing, of_b[f].passing);
      EXPECT_EQ(of_a[f].is_array, of_b[f].is_array);
      EXPECT_TRUE(of_a[f].is_array || of_a[f].bytes == of_b[f].bytes) << of_a[f].name;
      if (of_a[f].is_array)
        most =
            std::max(most, largest_difference(floats_in(of_a[f].bytes), floats_in(of_b[f].bytes)));
    }
  }
  return most > 0 ? most / scale : 0;
}

class Agreement : public testing::TestWithParam<Expectation> {
 protected:
  const std::string& strategy() const { return GetParam().strategy; }
  std::unique_ptr<const Compressor> native_ = made(GetParam().strategy),
                                    tensors_ = over_tensors(doc::parse_component(strategy()));

  /// Inputs of a step: noise, and the edges of compress/inputs.hpp in turn.
  static std::vector<std::vector<float>> gradients(const Shape& shape, std::uint64_t seed,
                                                   std::uint64_t step) {
    const auto n = static_cast<std::size_t>(shape.elements);
    if (step % 2 == 0)
      return {noise(n, 1000 * seed + 2 * step), noise(n, 1000 * seed + 2 * step + 1)};
    const auto edges = edge_inputs(n, 1000 * seed + step);
    const std::uint64_t at = 5 * (seed - 1) + step / 2;  // of two seeds: all fourteen
    return {within_range(edges[at % edges.size()].values),
            within_range(edges[(at + 4) % edges.size()].values)};
  }
  /// Magnitudes above 2^64 count as infinite, and are not encoded.
  static std::vector<float> within_range(std::vector<float> values) {
    if (largest_magnitude(values) > 0x1p64)
      for (float& v : values) v *= 0x1p-66f;
    return values;
  }
  /// The largest gradient or residual of a step that begins.
  static double scale_of(const std::vector<std::vector<float>>& gradients, RankGroup& group) {
    double scale = std::numeric_limits<float>::denorm_min();
    for (int r = 0; r < kRanksOfJob; ++r)
      scale = std::max({scale, largest_magnitude(gradients[static_cast<std::size_t>(r)]),
                        largest_magnitude(group.residual(r))});
    return scale;
  }
  /// visit(shape, keeps, seed)
  template <class Visit>
  void for_jobs(Visit visit) const {
    for (const Shape& shape : kShapesOfJobs) {
      if (native_->rounds(shape).empty()) continue;
      for (const bool keeps : residual_choices(*native_))
        for (std::uint64_t seed = 1; seed <= 2; ++seed) visit(shape, keeps, seed);
    }
  }
};

/// Two ranks of the one kind, two of the other, and one of each. Exact codecs are left to
/// themselves, and stay together for as long as one looks. Steps of the others begin with what the
/// first ones keep.
TEST_P(Agreement, StepsAreTheSame) {
  const double bound = bound_of(strategy());
  const std::uint64_t steps = bound == 0 ? 20 : 10;
  double worst = 0;
  for_jobs([&](const Shape& shape, bool keeps, std::uint64_t seed) {
    SCOPED_TRACE(testing::Message() << shape.elements << " elements, seed " << seed);
    RankGroup native(*native_, shape, kRanksOfJob, keeps),
        tensors(*tensors_, shape, kRanksOfJob, keeps);
    RankGroup both({native_.get(), tensors_.get()}, shape, keeps);
    for (std::uint64_t step = 0; step < steps; ++step) {
      const auto g = gradients(shape, seed, step);
      if (bound > 0) tensors.take(native), both.take(native);
      const double scale = scale_of(g, native);
      for (RankGroup* group : {&native, &tensors, &both}) {
        group->follow_phases(step);
        group->step(g, step);
      }
      for (RankGroup* other : {&tensors, &both}) {
        const double apart = largest_difference(native, *other, scale);
        worst = std::max(worst, apart);
        EXPECT_LE(apart, bound) << "step " << step << ", of " << scale;
        EXPECT_TRUE(bound > 0 || native.sent() == other->sent()) << "step " << step;
      }
    }
  });
  std::printf("| `%s` | %.1e |\n", strategy().c_str(), worst);
}

INSTANTIATE_TEST_SUITE_P(Registry, Agreement, testing::ValuesIn(all_expectations()), name_of_test);

/// A program's own, whose codec works on memory of the host.
class OwnCompressor : public Compressor {
 public:
  std::vector<Round> rounds(const Shape& shape) const override {
    return {{Combine::sum, DType::f16, 2 * shape.elements}};
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return make_compressor({"fp16", {}})->codec(shape);
  }
  Residual residual() const override { return Residual::none; }
};

TEST(TensorCodecs, ACompressorWithoutThemIsRefusedByName) {
  register_compressor({"no-tensors",
                       [](doc::OptionReader&) -> std::unique_ptr<const Compressor> {
                         return std::make_unique<OwnCompressor>();
                       },
                       "fp16, for a test.", "none"});
  EXPECT_THAT(
      [] {
        make_tensor_codec({"no-tensors", {}}, {4096, 64}, at::kCPU);
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("compressor no-tensors has no implementation over tensors yet; "
                             "those that have one: fp16, bf16")));
}

}  // namespace
}  // namespace linerate::torch_codecs
