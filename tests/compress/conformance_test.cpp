// What every registered compressor keeps to: sizes, inputs, agreement of ranks, conservation,
// damage. A new one is held to it by being registered, with a line in *_expectations.cpp.
#include <gmock/gmock.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>

#include "expectation.hpp"
#include "inputs.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "rank_group.hpp"

namespace linerate::compress {

void PrintTo(const Expectation& e, std::ostream* out) { *out << e.strategy; }

namespace {

std::vector<Expectation> expectations() {
  std::vector<Expectation> all = quantizer_expectations();
  for (Expectation& e : sparse_and_low_rank_expectations()) all.push_back(std::move(e));
  return all;
}

/// Vectors, words and blocks and what is around them; a prime; a matrix; all odd.
const std::vector<Shape> kShapes = {
    {1, 1},   {2, 1},   {3, 3},    {31, 1},    {32, 1},   {33, 1},    {100, 10},
    {127, 1}, {513, 3}, {1009, 1}, {4096, 64}, {5003, 1}, {9000, 90}, {65537, 1},
};

class Conformance : public testing::TestWithParam<Expectation> {
 protected:
  const Expectation& expected() const { return GetParam(); }
  std::unique_ptr<const Compressor> compressor_ =
      make_compressor(doc::parse_component(GetParam().strategy));

  bool has_residual() const { return keeps_residual(*compressor_); }
  /// With and without a residual, as far as the method allows either.
  std::vector<bool> residual_choices() const {
    switch (compressor_->residual()) {
      case Residual::optional:
        return {false, true};
      case Residual::needed:
        return {true};
      default:
        return {false};
    }
  }
};

double largest_magnitude(const std::vector<float>& values) {
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}

TEST(Compressors, EachRegisteredOneIsExpectedHere) {
  std::vector<std::string> expected;
  for (const Expectation& e : expectations())
    expected.push_back(doc::parse_component(e.strategy).name);
  for (const std::string& name : compressors().names())
    EXPECT_THAT(expected, testing::Contains(name));
}

TEST_P(Conformance, RoundsAreThoseOfTheFormulas) {
  EXPECT_TRUE(compressor_->rounds({0, 1}).empty()) << "nothing to send";
  for (const Shape& shape : kShapes) {
    const std::vector<Round> rounds = compressor_->rounds(shape);
    if (!expected().compresses(shape)) {
      EXPECT_TRUE(rounds.empty()) << shape.elements << " elements travel dense";
      continue;
    }
    const std::vector<std::int64_t> bytes = expected().bytes(shape);
    ASSERT_EQ(rounds.size(), bytes.size()) << shape.elements;
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      EXPECT_EQ(rounds[r].bytes, bytes[r]) << shape.elements;
      if (rounds[r].combine == Combine::sum) {
        EXPECT_TRUE(!rounds[r].is_bound || expected().size_alternates) << "sums are of one size";
        EXPECT_EQ(rounds[r].bytes % size_of(rounds[r].dtype), 0);
      }
    }
  }
}

/// residual + sent = v, each element by the rule of the method.
void expect_split(const Expectation& expected, const std::vector<float>& v,
                  const std::vector<float>& sent, const std::vector<float>& residual) {
  const double scale = largest_magnitude(v);
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (expected.split == Split::exact) {
      const float kept = sent[i] == 0 ? v[i] : 0.0f;
      ASSERT_EQ(residual[i], kept) << "element " << i;
      ASSERT_EQ(sent[i], v[i] - kept) << "element " << i;  // exact: one of the two is zero
      continue;
    }
    // The projection of numbers near the end of f32 may be beyond it: the residual saturates.
    if (std::abs(residual[i]) == std::numeric_limits<float>::max()) continue;
    // residual = v - sent is rounded once: half a unit in its last place, relative 2^-24.
    const double rounding = std::abs(static_cast<double>(residual[i])) * 0x1p-24;
    ASSERT_NEAR(static_cast<double>(residual[i]) + sent[i], v[i],
                rounding + expected.split_tolerance * scale)
        << "element " << i;
  }
}

TEST_P(Conformance, EveryInputIsSentAndWhatIsNotSentIsKept) {
  for (const Shape& shape : kShapes) {
    if (compressor_->rounds(shape).empty()) continue;
    for (const EdgeInput& input : edge_inputs(static_cast<std::size_t>(shape.elements), 3))
      for (const bool keeps : residual_choices()) {
        SCOPED_TRACE(testing::Message() << shape.elements << " elements, " << input.name
                                        << (keeps ? ", residual" : ""));
        RankGroup one(*compressor_, shape, 1, keeps);
        const std::vector<float> sent = one.step({input.values}, 0);
        const bool fits = keeps || largest_magnitude(input.values) <= expected().largest;
        const bool is_zero = largest_magnitude(input.values) == 0;
        EXPECT_TRUE(!fits || all_finite(sent));
        EXPECT_TRUE(!is_zero || !expected().keeps_zero || largest_magnitude(sent) == 0);
        if (!keeps) continue;
        EXPECT_TRUE(all_finite(one.residual(0)));
        if (expected().split != Split::none)
          expect_split(expected(), input.values, sent, one.residual(0));
        if (HasFatalFailure()) return;
      }
  }
}

/// Different inputs on the ranks, among them n < ranks.
TEST_P(Conformance, AllRanksGetTheSameMean) {
  for (const Shape& shape : kShapes) {
    if (compressor_->rounds(shape).empty() || shape.elements > 10000) continue;
    const auto inputs = edge_inputs(static_cast<std::size_t>(shape.elements), 5);
    for (const int ranks : {2, 3, 5})
      for (const bool keeps : residual_choices()) {
        RankGroup group(*compressor_, shape, ranks, keeps);
        for (std::uint64_t step = 0; step < 3; ++step) {
          std::vector<std::vector<float>> gradients;
          for (int r = 0; r < ranks; ++r)
            gradients.push_back(
                inputs[(step + static_cast<std::uint64_t>(r) * 3) % inputs.size()].values);
          group.step(gradients, step);
        }
      }
  }
}

/// (1/W) sum of all gradients = sum of all means + (1/W) sum of residuals, at every step.
TEST_P(Conformance, NothingIsLostOverSteps) {
  if (!has_residual() || expected().split == Split::none) return;
  const Shape shape{9000, 90};
  const auto n = static_cast<std::size_t>(shape.elements);
  for (const int ranks : {1, 2, 3, 4}) {
    RankGroup group(*compressor_, shape, ranks, true);
    std::vector<double> balance(n), magnitude(n);
    for (std::uint64_t step = 0; step < 12; ++step) {
      std::vector<std::vector<float>> gradients;
      for (int r = 0; r < ranks; ++r)
        gradients.push_back(noise(n, random_key(step, static_cast<std::uint64_t>(r))));
      const std::vector<float> mean = group.step(gradients, step);
      for (std::size_t i = 0; i < n; ++i) {
        balance[i] -= mean[i];
        magnitude[i] += std::abs(mean[i]);
        for (int r = 0; r < ranks; ++r) {
          const double g = gradients[static_cast<std::size_t>(r)][i];
          balance[i] += g / ranks;
          magnitude[i] += (std::abs(g) + 2 * std::abs(group.residual(r)[i])) / ranks;
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      double left = 0;
      for (int r = 0; r < ranks; ++r) left += group.residual(r)[i] / static_cast<double>(ranks);
      // A step adds to the residual, subtracts from it, and sums the ranks: ranks + 3 roundings of
      // at most what has been there so far, or in the type that travels.
      const double rounding =
          ((ranks + 3) * 0x1p-24 + ranks * expected().sum_error + expected().split_tolerance) *
          (magnitude[i] + 1);
      ASSERT_NEAR(balance[i], left, rounding) << ranks << " ranks, element " << i;
    }
  }
}

/// Stationary noise, the same mean: the residual of the last steps is no larger than that of steps
/// long before. The rule that subtracts the mean of the ranks fails this: it grows as the root of
/// the steps.
TEST_P(Conformance, TheResidualStaysBounded) {
  if (compressor_->residual() != Residual::needed) return;
  const Shape shape{1024, 32};
  constexpr int kRanks = 4;
  RankGroup group(*compressor_, shape, kRanks, true);
  double early = 0, late = 0;
  for (std::uint64_t step = 0; step < 1200; ++step) {
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t r = 0; r < kRanks; ++r)
      gradients.push_back(noise(1024, random_key(step, r)));
    group.step(gradients, step);
    double squares = 0;
    for (const float e : group.residual(0)) squares += static_cast<double>(e) * e;
    if (step >= 200 && step < 300) early += std::sqrt(squares) / 100;
    if (step >= 1100) late += std::sqrt(squares) / 100;
  }
  EXPECT_LE(late, 1.3 * early);  // the average rule: sqrt(1150 / 250) = 2.1
}

std::vector<std::vector<std::uint8_t>> run_bytes(const Compressor& compressor, const Shape& shape,
                                                 bool keeps) {
  RankGroup group(compressor, shape, 2, keeps);
  std::vector<std::vector<std::uint8_t>> all;
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto n = static_cast<std::size_t>(shape.elements);
    group.step({noise(n, 2 * step), noise(n, 2 * step + 1)}, step);
    for (const auto& round : group.sent())
      for (const Payload& payload : round) all.push_back(payload.copy());
  }
  return all;
}

TEST_P(Conformance, TheSameKeysGiveTheSameBytes) {
  for (const Shape& shape : kShapes) {
    if (compressor_->rounds(shape).empty()) continue;
    for (const bool keeps : residual_choices())
      EXPECT_EQ(run_bytes(*compressor_, shape, keeps), run_bytes(*compressor_, shape, keeps));
  }
}

#if defined(__SSE__)
/// A thread that flushes denormals to zero sends what one sends that does not.
TEST_P(Conformance, FlushingDenormalsChangesNothing) {
  const Shape shape{513, 3};
  if (compressor_->rounds(shape).empty()) return;
  const bool keeps = residual_choices().back();
  const std::vector<std::vector<float>> steps = {noise(513, 1, 1e-38f), noise(513, 2, 1e-39f)};
  const auto run = [&] {  // of one rank: sums of several are not the codec's
    RankGroup group(*compressor_, shape, 1, keeps);
    return std::vector{group.step({steps[0]}, 0), group.step({steps[1]}, 1)};
  };
  const std::uint32_t before = _mm_getcsr();
  const auto kept = run();
  _mm_setcsr(before | 0x8040);
  const auto flushed = run();
  _mm_setcsr(before);
  for (std::size_t step = 0; step < kept.size(); ++step)
    EXPECT_EQ(0, std::memcmp(kept[step].data(), flushed[step].data(), 4 * 513)) << step;
}
#endif

/// Saved behind step 3 and read by new codecs, steps 4 to 6 send what they would have sent.
TEST_P(Conformance, SavedStateGoesOn) {
  const Shape shape{9000, 90};
  const auto n = static_cast<std::size_t>(shape.elements);
  const bool keeps = residual_choices().back();
  RankGroup whole(*compressor_, shape, 2, keeps), resumed(*compressor_, shape, 2, keeps);
  for (std::uint64_t step = 0; step < 6; ++step) {
    if (step == 3)
      for (int r = 0; r < 2; ++r) {
        resumed.codec(r).load(whole.codec(r).save());
        resumed.residual(r) = whole.residual(r);
      }
    const std::vector<std::vector<float>> g = {noise(n, 2 * step), noise(n, 2 * step + 1)};
    const std::vector<float> mean = whole.step(g, step);
    EXPECT_TRUE(step < 3 || resumed.step(g, step) == mean) << step;
  }
  for (int r = 0; r < 2; ++r) EXPECT_EQ(whole.residual(r), resumed.residual(r));
}

TEST_P(Conformance, StateOfAnotherShapeIsRefused) {
  const auto saved = compressor_->codec({9000, 90})->save();
  std::vector<std::byte> longer = saved;
  longer.push_back(std::byte{1});
  EXPECT_THROW(compressor_->codec({9000, 90})->load(longer), InputError);
  if (saved.empty()) return;
  EXPECT_THROW(compressor_->codec({9000, 90})->load(std::span(saved).first(saved.size() - 1)),
               InputError);
}

/// Two ranks that have encoded `round`, and what arrived at them: undamaged up to here.
struct Damaged {
  Damaged(const Compressor& compressor, const Shape& shape, bool keeps, int round)
      : group(compressor, shape, 2, keeps), mean(static_cast<std::size_t>(shape.elements)) {
    const auto n = mean.size();
    const std::vector<std::vector<float>> gradients = {noise(n, 1), noise(n, 2)};
    for (int r = 0; r <= round; ++r) {
      group.encode(r, gradients, 0);
      if (r < round) group.decode(r, mean);
    }
    const Round& of = group.rounds()[static_cast<std::size_t>(round)];
    is_last = round + 1 == static_cast<int>(group.rounds().size());
    if (of.combine == Combine::sum)
      arrived.push_back(summed(group.sent().back(), of.dtype));
    else
      for (const Payload& payload : group.sent().back()) arrived.emplace_back(payload.bytes());
  }
  void decode(int round) {
    group.decode_at(0, round, arrived, is_last ? std::span<float>(mean) : std::span<float>());
  }
  RankGroup group;
  std::vector<float> mean;
  std::vector<Payload> arrived;
  bool is_last = false;
};

TEST_P(Conformance, PayloadsOfAnotherSizeAreRefused) {
  for (const Shape& shape : {Shape{33, 1}, Shape{513, 3}, Shape{9000, 90}}) {
    const auto rounds = static_cast<int>(compressor_->rounds(shape).size());
    for (int round = 0; round < rounds; ++round) {
      const std::size_t size = Damaged(*compressor_, shape, residual_choices().back(), round)
                                   .arrived.back()
                                   .bytes()
                                   .size();
      for (const std::size_t other : {std::size_t{0}, std::size_t{1}, std::size_t{3}, size / 2,
                                      size - 1, size + 1, size + 4, 2 * size}) {
        if (other == size) continue;
        Damaged damaged(*compressor_, shape, residual_choices().back(), round);
        const std::vector<std::uint8_t> whole = damaged.arrived.back().copy();
        Payload cut(other);
        for (std::size_t i = 0; i < other; ++i)
          cut.bytes()[i] = std::byte{i < size ? whole[i] : std::uint8_t{0}};
        damaged.arrived.back() = std::move(cut);
        EXPECT_THROW(damaged.decode(round), InputError) << other << " bytes for " << size;
      }
      Damaged fewer(*compressor_, shape, residual_choices().back(), round);
      fewer.arrived.pop_back();
      EXPECT_THROW(fewer.decode(round), InputError) << "a rank's payload is not there";
    }
  }
}

/// Any flipped bit: InputError, or a decoded tensor; what is outside stays untouched (sanitizers).
TEST_P(Conformance, FlippedBitsAreRefusedOrDecoded) {
  for (const Shape& shape : {Shape{33, 1}, Shape{513, 3}}) {
    const auto rounds = static_cast<int>(compressor_->rounds(shape).size());
    for (int round = 0; round < rounds; ++round) {
      const std::size_t bits =
          8 *
          Damaged(*compressor_, shape, residual_choices().back(), round).arrived[0].bytes().size();
      for (std::size_t trial = 0; trial < 200; ++trial) {
        Damaged damaged(*compressor_, shape, residual_choices().back(), round);
        const std::size_t flips = 1 + trial % 3;
        for (std::size_t f = 0; f < flips; ++f) {
          const std::size_t bit = random_below(trial, f, bits);
          damaged.arrived[0].bytes()[bit / 8] ^= std::byte{1} << (bit % 8);
        }
        try {
          damaged.decode(round);
        } catch (const InputError&) {
        }
      }
    }
  }
}

std::string name_of_test(const testing::TestParamInfo<Expectation>& info) {
  std::string name = info.param.strategy;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Registry, Conformance, testing::ValuesIn(expectations()), name_of_test);

}  // namespace
}  // namespace linerate::compress
