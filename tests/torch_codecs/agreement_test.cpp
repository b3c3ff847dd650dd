// The codecs over tensors against those of compress: the same payloads, means, residuals and state,
// bit for bit where they are said to be exact, else within a bound; each decodes the other's. It
// prints a table, and docs/compression.md has its summary.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
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

const std::vector<Shape> kShapes = {{2, 1},    {3, 3},     {31, 1},    {33, 1},
                                    {100, 10}, {513, 3},   {1009, 1},  {4096, 64},
                                    {5003, 1}, {9000, 90}, {33000, 30}};

/// Ranks of a job, each with a codec of one of the two kinds.
class Job {
 public:
  Job(const Compressor& native, const std::string& strategy, const Shape& shape, bool keeps,
      const std::vector<bool>& over_tensors)
      : compressor_(native), shape_(shape) {
    const auto n = static_cast<std::size_t>(shape.elements);
    for (const bool tensors : over_tensors) {
      if (tensors)
        codecs_.push_back(make_tensor_codec(doc::parse_component(strategy), shape, at::kCPU));
      else
        codecs_.push_back(native.codec(shape));
      residuals_.emplace_back(keeps ? n : 0);
      means_.emplace_back(n);
    }
  }

  void step(const std::vector<std::vector<float>>& gradients, std::uint64_t step, int phase) {
    sent_.clear();
    const std::vector<Round> rounds =
        phase < 0 ? compressor_.rounds(shape_) : compressor_.rounds(shape_, phase);
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      const bool last = round + 1 == rounds.size();
      const std::vector<Payload> payloads =
          encoded(rounds[round], static_cast<int>(round), gradients, step, phase);
      for (const Payload& payload : payloads) sent_.push_back(payload.copy());
      std::vector<Payload> sum;
      if (rounds[round].combine == Combine::sum)
        sum.push_back(summed(payloads, rounds[round].dtype));
      std::vector<std::span<const std::byte>> spans;
      for (const Payload& payload : sum.empty() ? payloads : sum) spans.push_back(payload.bytes());
      for (std::size_t r = 0; r < codecs_.size(); ++r)
        codecs_[r]->decode(static_cast<int>(round), {spans, static_cast<int>(codecs_.size())},
                           last ? std::span<float>(means_[r]) : std::span<float>());
    }
    for (const auto& codec : codecs_) codec->keep();
  }
  /// What another job's ranks keep.
  void take(Job& other) {
    for (std::size_t r = 0; r < codecs_.size(); ++r) codecs_[r]->load(other.codecs_[r]->save());
    residuals_ = other.residuals_;
  }

  const std::vector<std::vector<std::uint8_t>>& sent() const { return sent_; }
  const std::vector<std::vector<float>>& means() const { return means_; }
  const std::vector<std::vector<float>>& residuals() const { return residuals_; }
  SavedState state(std::size_t rank) { return codecs_[rank]->save(); }

 private:
  std::vector<Payload> encoded(const Round& of, int round,
                               const std::vector<std::vector<float>>& gradients, std::uint64_t step,
                               int phase) {
    std::vector<Payload> payloads;
    for (std::size_t r = 0; r < codecs_.size(); ++r) {
      Payload room(static_cast<std::size_t>(of.bytes));
      const std::size_t bytes =
          codecs_[r]->encode(round,
                             {gradients[r], residuals_[r], keys_of(step, static_cast<int>(r)),
                              static_cast<int>(codecs_.size()), phase},
                             room.bytes());
      payloads.emplace_back(room.bytes().first(bytes));
    }
    return payloads;
  }

  const Compressor& compressor_;
  Shape shape_;
  std::vector<std::unique_ptr<Codec>> codecs_;
  std::vector<std::vector<float>> residuals_, means_;
  std::vector<std::vector<std::uint8_t>> sent_;
};

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

  void compare(Job& a, Job& b, double scale) {
    for (std::size_t i = 0; i < a.sent().size(); ++i) {
      ++payloads;
      equal += a.sent()[i] == b.sent()[i];
    }
    for (std::size_t r = 0; r < a.means().size(); ++r) {
      take(mean, largest_difference(a.means()[r], b.means()[r]), scale);
      take(residual, largest_difference(a.residuals()[r], b.residuals()[r]), scale);
      compare_states(a.state(r), b.state(r), scale);
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
        take(state, largest_difference(floats(a[f]), floats(b[f])), scale);
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
  static std::vector<float> floats(const SavedField& field) {
    std::vector<float> values(field.bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), field.bytes.data(), field.bytes.size());
    return values;
  }
};

class Agreement : public testing::TestWithParam<Expectation> {
 protected:
  const std::string& strategy() const { return GetParam().strategy; }
  std::unique_ptr<const Compressor> compressor_ = made(GetParam().strategy);

  std::vector<bool> residual_choices() const {
    if (compressor_->residual() == Residual::optional) return {false, true};
    return {compressor_->residual() == Residual::needed};
  }
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
    const auto is_large = [](float v) { return std::abs(v) > 0x1p64f; };
    if (std::any_of(values.begin(), values.end(), is_large))
      for (float& v : values) v *= 0x1p-66f;
    return values;
  }
  static double scale_of(const std::vector<std::vector<float>>& gradients,
                         const std::vector<std::vector<float>>& residuals) {
    double scale = std::numeric_limits<float>::denorm_min();
    for (const auto* list : {&gradients, &residuals})
      for (const auto& values : *list)
        for (const float v : values) scale = std::max(scale, std::abs(static_cast<double>(v)));
    return scale;
  }
  /// visit(shape, keeps, seed)
  template <class Visit>
  void for_jobs(Visit visit) const {
    for (const Shape& shape : kShapes) {
      if (compressor_->rounds(shape).empty()) continue;
      for (const bool keeps : residual_choices())
        for (std::uint64_t seed = 1; seed <= 2; ++seed) visit(shape, keeps, seed);
    }
  }
};

constexpr std::uint64_t kSteps = 10;

/// Two ranks of the one kind, two of the other, and one of each; each step begins with what the
/// first ones keep, and is compared.
TEST_P(Agreement, StepsFromTheSameStateAreTheSame) {
  Tally same, mixed;
  for_jobs([&](const Shape& shape, bool keeps, std::uint64_t seed) {
    SCOPED_TRACE(testing::Message() << shape.elements << " elements, seed " << seed);
    Job native(*compressor_, strategy(), shape, keeps, {false, false});
    Job tensors(*compressor_, strategy(), shape, keeps, {true, true});
    Job both(*compressor_, strategy(), shape, keeps, {false, true});
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const auto g = gradients(shape, seed, step);
      const int phase = compressor_->phases().of_step(static_cast<std::int64_t>(step));
      tensors.take(native);
      both.take(native);
      const double scale = scale_of(g, native.residuals());
      for (Job* job : {&native, &tensors, &both}) job->step(g, step, phase);
      Tally now, now_mixed;
      now.compare(native, tensors, scale);
      now_mixed.compare(native, both, scale);
      same.add(now);
      mixed.add(now_mixed);
      const double bound = bound_of(strategy());
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

/// Left to themselves, exact codecs stay together for as long as one looks.
TEST_P(Agreement, ExactOnesStayTogether) {
  if (bound_of(strategy()) > 0) return;
  for_jobs([&](const Shape& shape, bool keeps, std::uint64_t seed) {
    Job native(*compressor_, strategy(), shape, keeps, {false, false});
    Job tensors(*compressor_, strategy(), shape, keeps, {true, true});
    for (std::uint64_t step = 0; step < 2 * kSteps; ++step) {
      const auto g = gradients(shape, seed, step);
      const int phase = compressor_->phases().of_step(static_cast<std::int64_t>(step));
      for (Job* job : {&native, &tensors}) job->step(g, step, phase);
      Tally now;
      now.compare(native, tensors, 1);
      ASSERT_TRUE(now.is_exact()) << shape.elements << " elements, seed " << seed << ", step "
                                  << step;
    }
  });
}

/// How often operators ran that wait for a device's values: this thread's, while it lives.
class Waits {
 public:
  Waits() {
    found() = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction& operation) -> std::unique_ptr<at::ObserverContext> {
          static const std::vector<std::string> kWaiting = {
              "aten::_local_scalar_dense", "aten::nonzero",    "aten::equal",
              "aten::masked_select",       "aten::is_nonzero", "aten::_unique2"};
          found() += std::count(kWaiting.begin(), kWaiting.end(), operation.name());
          return nullptr;
        }));
  }
  ~Waits() { at::removeCallback(handle_); }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  std::int64_t count() const { return found(); }

 private:
  static std::int64_t& found() {
    static std::int64_t count = 0;
    return count;
  }
  at::CallbackHandle handle_;
};

TEST(Waits, OfTheHostForValuesAreCounted) {
  const Waits waits;
  const at::Tensor x = at::ones({3});
  EXPECT_EQ(waits.count(), 0);
  EXPECT_EQ(x.sum().item<float>(), 3);
  EXPECT_EQ(at::nonzero(x).numel(), 3);
  EXPECT_EQ(waits.count(), 2);
}

/// The moments, each stage's tail, and the count: at most seven stages at a density of 1 %.
std::int64_t most_waits(const std::string& strategy) {
  return doc::parse_component(strategy).name == "sidco" ? 8 : 0;
}

TEST_P(Agreement, NothingWaitsForValues) {
  for (const Shape& shape : kShapes)
    for (int phase = -1; phase < compressor_->phases().count(); ++phase) {
      const std::vector<Round> rounds =
          phase < 0 ? compressor_->rounds(shape) : compressor_->rounds(shape, phase);
      if (rounds.empty()) continue;
      const auto codec = make_tensor_codec(doc::parse_component(strategy()), shape, at::kCPU);
      TensorInput input{at::randn({shape.elements}), {}, keys_of(1, 0), 2, phase};
      if (residual_choices().back()) input.residual = at::randn({shape.elements});
      const at::Tensor mean = at::zeros({shape.elements});
      const Waits waits;
      for (std::size_t round = 0; round < rounds.size(); ++round) {
        const TensorPayload sent = codec->encode(static_cast<int>(round), input);
        const bool alternates = rounds[round].is_bound && rounds[round].combine == Combine::sum;
        EXPECT_TRUE(alternates || sent.bytes.numel() == rounds[round].bytes);
        EXPECT_LE(sent.bytes.numel(), rounds[round].bytes);
        EXPECT_EQ(sent.used.defined(),
                  rounds[round].is_bound && rounds[round].combine == Combine::gather);
        TensorArrived arrived{{sent.bytes}, 2, {}};
        if (rounds[round].combine == Combine::gather) arrived.payloads.push_back(sent.bytes);
        codec->decode(static_cast<int>(round), arrived, mean);
      }
      codec->keep();
      EXPECT_LE(waits.count(), most_waits(strategy()));
      EXPECT_FALSE(codec->damaged().defined() && codec->damaged().item<bool>());
    }
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
