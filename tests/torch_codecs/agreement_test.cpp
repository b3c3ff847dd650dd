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

const std::vector<Shape> kShapes = {{2, 1},    {3, 3},     {31, 1},    {33, 1},
                                    {100, 10}, {513, 3},   {1009, 1},  {4096, 64},
                                    {5003, 1}, {9000, 90}, {33000, 30}};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  if (std::memcmp(a.data(), b.data(), 4 * a.size()) == 0) return most;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;  // infinities too
    const double apart = std::abs(static_cast<double>(a[i]) - b[i]);
    most = std::max(most, std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart);
  }
  return most;
}

/// What was compared of a strategy.
struct Tally {
  std::int64_t payloads = 0, equal = 0, numbers_differ = 0;
  double mean = 0, residual = 0, state = 0;  // worst differences, of the largest |gradient|

  void compare(RankGroup& a, RankGroup& b, double scale) {
    const auto of_a = a.sent_bytes(), of_b = b.sent_bytes();
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      ++payloads;
      equal += of_a[i] == of_b[i];
    }
    for (int r = 0; r < kRanksOfJob; ++r) {
      take(mean, largest_difference(a.mean(r), b.mean(r)), scale);
      take(residual, largest_difference(a.residual(r), b.residual(r)), scale);
      compare_states(a.codec(r).save(), b.codec(r).save(), scale);
    }
  }
  void compare_states(const SavedState& a, const SavedState& b, double scale) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t f = 0; f < a.size(); ++f) {
      EXPECT_EQ(a[f].name, b[f].name);
      EXPECT_EQ(a[f].passing, b[f].passing);
      EXPECT_EQ(a[f].is_array, b[f].is_array);
      ASSERT_EQ(a[f].bytes.size(), b[f].bytes.size());
      if (!a[f].is_array)
        numbers_differ += a[f].bytes != b[f].bytes;
      else
        take(state, largest_difference(floats_in(a[f].bytes), floats_in(b[f].bytes)), scale);
    }
  }
  double worst() const { return std::max({mean, residual, state}); }
  void add(const Tally& other) {
    payloads += other.payloads;
    equal += other.equal;
    numbers_differ += other.numbers_differ;
    mean = std::max(mean, other.mean);
    residual = std::max(residual, other.residual);
    state = std::max(state, other.state);
  }
  bool is_exact() const { return equal == payloads && numbers_differ == 0 && worst() == 0; }

 private:
  static void take(double& most, double apart, double scale) {
    most = std::max(most, apart > 0 ? apart / scale : 0);
  }
};

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
    for (const Shape& shape : kShapes) {
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
  Tally same, mixed;
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
      Tally now, now_mixed;
      now.compare(native, tensors, scale);
      now_mixed.compare(native, both, scale);
      same.add(now);
      mixed.add(now_mixed);
      if (std::max(now.worst(), now_mixed.worst()) > bound ||
          (bound == 0 && !(now.is_exact() && now_mixed.is_exact())))
        ADD_FAILURE() << "step " << step << ": payloads equal " << now.equal << " of "
                      << now.payloads << ", apart: mean " << now.mean << ", residual "
                      << now.residual << " of " << scale << ", state " << now.state << ", mixed "
                      << now_mixed.worst();
    }
  });
  std::printf("| `%s` | %lld of %lld | %.1e | %.1e |\n", strategy().c_str(),
              static_cast<long long>(same.equal), static_cast<long long>(same.payloads),
              same.worst(), mixed.worst());
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
  try {
    make_tensor_codec({"no-tensors", {}}, {4096, 64}, at::kCPU);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("compressor no-tensors has no implementation over tensors yet; "
                                   "those that have one: fp16, bf16"));
  }
}

}  // namespace
}  // namespace linerate::torch_codecs
