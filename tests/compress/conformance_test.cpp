// What every registered compressor keeps to: sizes, inputs, agreement of ranks, conservation,
// damage, and a second implementation. A new one is held to it by being registered, with rows in
// expectations.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>

#include "exchanged.hpp"
#include "expectation.hpp"
#include "inputs.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/error.hpp"
#include "rank_group.hpp"

namespace linerate::compress {

namespace {

/// Vectors, words and blocks and what is around them; a prime; a matrix; all odd.
const std::vector<Shape> kShapes = {
    {1, 1},   {2, 1},   {3, 3},    {31, 1},    {32, 1},   {33, 1},    {100, 10},
    {127, 1}, {513, 3}, {1009, 1}, {4096, 64}, {5003, 1}, {9000, 90}, {65537, 1},
};

class Conformance : public testing::TestWithParam<Expectation> {
 protected:
  const Expectation& expected() const { return GetParam(); }
  std::unique_ptr<const Compressor> compressor_ = made(GetParam().strategy);

  bool has_residual() const { return keeps_residual(*compressor_); }
};

TEST(Compressors, EachRegisteredOneIsExpectedHereAndHasASecondImplementation) {
  std::vector<std::string> expected, twins;
  for (const Expectation& e : all_expectations()) {
    expected.push_back(doc::parse_component(e.strategy).name);
    if (e.sent || e.twin) twins.push_back(expected.back());
  }
  for (const std::string& name : compressors().names()) {
    EXPECT_THAT(expected, testing::Contains(name));
    EXPECT_THAT(twins, testing::Contains(name));
  }
}

TEST_P(Conformance, GoldenSizesAndRefusedOptionsAreThose) {
  if (expected().golden > 0) {
    std::int64_t bytes = 0;
    for (const Round& round : compressor_->rounds({1000003, 1})) bytes += round.bytes;
    EXPECT_EQ(bytes, expected().golden);
  }
  const std::string name = doc::parse_component(GetParam().strategy).name;
  for (const std::string& wrong : expected().refuses)
    EXPECT_THROW(made(name + "(" + wrong + ")"), UsageError) << wrong;
}

TEST_P(Conformance, RoundsAreThoseOfTheFormulas) {
  EXPECT_TRUE(compressor_->rounds({0, 1}).empty()) << "nothing to send";
  for (const int phase : phases_of(*compressor_))
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.elements << " elements, phase " << phase);
      const std::vector<Round> rounds = rounds_of(*compressor_, shape, phase);
      if (!expected().compresses(shape)) {
        EXPECT_TRUE(rounds.empty()) << "dense in steady steps is dense in all";
        continue;
      }
      const bool own = phase >= 0 && expected().bytes_in;
      const auto bytes = own ? expected().bytes_in(shape, phase) : expected().bytes(shape);
      ASSERT_EQ(rounds.size(), bytes.size());
      for (std::size_t r = 0; r < bytes.size(); ++r) {
        EXPECT_EQ(rounds[r].bytes, bytes[r]);
        if (rounds[r].combine == Combine::gather) continue;
        const bool may_alternate = expected().size_alternates && phase < 0;
        EXPECT_TRUE(!rounds[r].is_bound || may_alternate) << "sums are of one size";
        EXPECT_EQ(rounds[r].bytes % size_of(rounds[r].dtype), 0);
      }
    }
}

/// By their shapes alone, in every phase; chunks of the two-phase exchange are no tensors.
TEST_P(Conformance, SmallTensorsTravelDenseWhereAsked) {
  constexpr std::int64_t kSmall = 4096;
  doc::Component component = doc::parse_component(GetParam().strategy);
  component.options.emplace_back("dense_below", std::to_string(kSmall));
  const auto asked = made(doc::to_text(component));
  component.options.back().second = "0";
  const auto none = made(doc::to_text(component));
  for (const int phase : phases_of(*compressor_))
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.elements << " elements, phase " << phase);
      const auto bytes = [&](const Compressor& compressor) {
        std::vector<std::int64_t> all;
        for (const Round& round : rounds_of(compressor, shape, phase)) all.push_back(round.bytes);
        return all;
      };
      EXPECT_EQ(bytes(*none), bytes(*compressor_));
      if (shape.elements < kSmall)
        EXPECT_THAT(bytes(*asked), testing::IsEmpty());
      else
        EXPECT_EQ(bytes(*asked), bytes(*compressor_));
    }
  EXPECT_EQ(fits_two_phase(*asked), fits_two_phase(*compressor_));
  EXPECT_EQ(is_summable(*asked), is_summable(*compressor_));
  if (!fits_two_phase(*asked)) return;
  TwoPhase with(*asked, 3 * kSmall + 100, 4, 3), without(*compressor_, 3 * kSmall + 100, 4, 3);
  for (std::size_t chunk = 0; chunk < 4; ++chunk)
    EXPECT_EQ(with.worker(chunk).bytes, without.worker(chunk).bytes);
}

TEST(Phases, WarmUpsOneAfterTheOtherThenTheCycleInTurn) {
  const Phases phases{{{"dense", 2}, {"half", 1}}, {{"left", 1}, {"right", 1}}};
  EXPECT_EQ(phases.count(), 4);
  std::vector<int> found;
  for (std::int64_t step = 0; step < 7; ++step) found.push_back(phases.of_step(step));
  EXPECT_THAT(found, testing::ElementsAre(0, 0, 1, 2, 3, 2, 3));
  EXPECT_EQ(Phases{}.of_step(12345), 0);
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

/// A first step of one rank, in any phase.
void expect_split_of(const Expectation& expected, const Compressor& compressor, const Shape& shape,
                     const EdgeInput& input, bool keeps, int phase) {
  SCOPED_TRACE(testing::Message() << shape.elements << " elements, " << input.name
                                  << (keeps ? ", residual" : "") << ", phase " << phase);
  RankGroup one(compressor, shape, 1, keeps);
  one.set_phase(phase);
  const std::vector<float> sent = one.step({input.values}, 0);
  const bool fits = keeps || largest_magnitude(input.values) <= expected.largest;
  const bool is_zero = largest_magnitude(input.values) == 0;
  EXPECT_TRUE(!fits || all_finite(sent));
  EXPECT_TRUE(!is_zero || !expected.keeps_zero || largest_magnitude(sent) == 0);
  if (!keeps) return;
  EXPECT_TRUE(all_finite(one.residual(0)));
  if (expected.split != Split::none) expect_split(expected, input.values, sent, one.residual(0));
}

TEST_P(Conformance, EveryInputIsSentAndWhatIsNotSentIsKept) {
  for (const int phase : phases_of(*compressor_))
    for (const Shape& shape : kShapes) {
      if (rounds_of(*compressor_, shape, phase).empty()) continue;
      for (const EdgeInput& input : edge_inputs(static_cast<std::size_t>(shape.elements), 3))
        for (const bool keeps : residual_choices(*compressor_)) {
          expect_split_of(expected(), *compressor_, shape, input, keeps, phase);
          if (HasFatalFailure()) return;
        }
    }
}

/// One rank, inputs of every kind around words, blocks and buckets.
TEST_P(Conformance, APayloadIsThatOfASecondImplementation) {
  if (!expected().sent) return;
  for (const std::int64_t n : {33, 512, 1009, 5003})
    for (const EdgeInput& input : edge_inputs(static_cast<std::size_t>(n), 11)) {
      SCOPED_TRACE(testing::Message() << n << " elements, " << input.name);
      RankGroup one(*compressor_, {n, 1}, 1, compressor_->residual() == Residual::needed);
      if (one.rounds().empty()) continue;
      const std::vector<float> sent = one.step({input.values}, 0);
      const auto twins = expected().sent(input.values, keys_of(0, 0), one.sent()[0][0]);
      for (std::size_t i = 0; i < sent.size(); ++i)
        ASSERT_TRUE(twins[i].allows(sent[i]))
            << i << ": " << input.values[i] << " sent as " << sent[i] << ", not " << twins[i].lower
            << " or " << twins[i].upper;
    }
}

/// Ranks' payloads by the rule of one.
Outcome outcome_of(const Sent& rule, const Given& given) {
  return of_ranks(given, [&](std::size_t r) {
    Numbers sent;
    for (const Neighbours& one : rule(given.corrected(r), given.keys[r], given.payloads[r])) {
      const bool is_open = one.both && one.lower != one.upper;
      sent.push_back(is_open  ? std::numeric_limits<double>::quiet_NaN()
                     : one.up ? one.upper
                              : one.lower);
    }
    return sent;
  });
}

/// |found - expected| / |expected|, over the elements that have one right answer; counts the
/// others. `scale` takes the place of |expected|.
double relative_difference(const std::vector<float>& found, const Numbers& expected,
                           std::size_t& open, double scale = 0) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      ++open;
      continue;
    }
    off += (found[i] - expected[i]) * (found[i] - expected[i]);
    all += expected[i] * expected[i];
  }
  return off == 0 ? 0 : std::sqrt(off) / (scale > 0 ? scale : std::sqrt(all));
}
/// Prints the largest differences; docs/compression.md has their summary. Votes of 9 ranks need
/// four bits of a count, and those of 2 may be even.
TEST_P(Conformance, StepsOfRanksAreThoseOfASecondImplementation) {
  if (!expected().sent && !expected().twin) return;
  const Shape shape{40 * 60, 40};
  double of_mean = 0, of_kept = 0;
  std::size_t open = 0, ignored = 0, elements = 0;
  for (const int ranks : {1, 2, 3, 9}) {
    RankGroup group(*compressor_, shape, ranks, has_residual());
    const Twin twin = expected().twin ? expected().twin() : [&](const Given& given) {
      return outcome_of(expected().sent, given);
    };
    for (std::uint64_t step = 0; step < 8; ++step) {
      std::vector<std::vector<float>> gradients, residuals;
      std::vector<Keys> keys;
      for (int r = 0; r < ranks; ++r) {
        const auto stream = random_key(step, static_cast<std::uint64_t>(r));
        gradients.push_back(noise(40 * 60, stream, static_cast<float>(std::exp2(r))));
        residuals.push_back(group.residual(r));
        keys.push_back(keys_of(step, r));
      }
      const SavedState before = group.codec(0).save();
      const std::vector<float> mean = group.step(gradients, step);
      const auto& sent = group.sent()[0];
      const Given given{shape,  gradients, residuals, {sent.begin(), sent.end()},
                        before, keys,      step};
      const Outcome outcome = twin(given);
      of_mean = std::max(of_mean, relative_difference(mean, outcome.mean, open));
      elements += mean.size();
      for (std::size_t r = 0; r < outcome.kept.size(); ++r) {
        const std::vector<float>& kept = group.residual(static_cast<int>(r));
        if (!kept.empty())
          of_kept = std::max(of_kept, relative_difference(kept, outcome.kept[r], ignored,
                                                          norm_of(given.corrected(r))));
      }
    }
  }
  fmt::print("[ twin ] {:34} mean {:8.1e}, residual {:8.1e}, either is right {:.2f} %\n",
             expected().strategy, of_mean, of_kept,
             100.0 * static_cast<double>(open) / static_cast<double>(elements));
  EXPECT_LE(of_mean, expected().twin_bound);
  EXPECT_LE(of_kept, expected().twin_bound);
  EXPECT_LE(static_cast<double>(open), 0.02 * static_cast<double>(elements));
}

/// What is decoded of 2000 keys, for each element, is v in the mean: within 6 standard errors, of
/// 400 elements; and the variance within its bound.
TEST_P(Conformance, UnbiasedOnesHaveTheMeanAndVarianceOfTheirFormulas) {
  constexpr std::size_t kElements = 400;
  constexpr int kDraws = 2000;
  if (expected().variance == 0) return;
  EXPECT_TRUE(compressor_->is_unbiased());
  std::vector<float> v = noise(kElements, 1);
  // None so small that it is sent by no draw at all, which would leave no error to measure.
  for (float& x : v) x = std::copysign(std::max(std::abs(x), 0.2f), x);
  std::vector<double> sum(kElements), squares(kElements);
  RankGroup one(*compressor_, {kElements, 1}, 1, false);
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    const std::vector<float> sent = one.step({v}, draw);
    for (std::size_t i = 0; i < kElements; ++i) {
      sum[i] += sent[i];
      squares[i] += (static_cast<double>(sent[i]) - v[i]) * (static_cast<double>(sent[i]) - v[i]);
    }
  }
  double variance = 0, size = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    const double error = std::sqrt(squares[i]) / kDraws;  // of the mean of the draws
    ASSERT_NEAR(sum[i] / kDraws, v[i], 6 * error + 1e-6) << i;
    variance += squares[i] / kDraws;
    size += static_cast<double>(v[i]) * v[i];
  }
  EXPECT_LE(variance, 1.05 * expected().variance * size);
}
TEST(Compressors, ThoseThatRoundOneWayAreNotUnbiased) {
  for (const char* biased : {"maxmin", "terngrad", "signsgd", "efsignsgd", "onebit", "fp16"})
    EXPECT_FALSE(made(biased)->is_unbiased()) << biased;
}

/// Different inputs on the ranks, among them n < ranks.
TEST_P(Conformance, AllRanksGetTheSameMean) {
  for (const Shape& shape : kShapes) {
    if (compressor_->rounds(shape).empty() || shape.elements > 10000) continue;
    const auto inputs = edge_inputs(static_cast<std::size_t>(shape.elements), 5);
    for (const int ranks : {2, 3, 5})
      for (const bool keeps : residual_choices(*compressor_)) {
        RankGroup group(*compressor_, shape, ranks, keeps);
        for (std::uint64_t step = 0; step < 3; ++step) {
          std::vector<std::vector<float>> gradients;
          for (int r = 0; r < ranks; ++r)
            gradients.push_back(
                inputs[(step + static_cast<std::uint64_t>(r) * 3) % inputs.size()].values);
          group.follow_phases(step);
          group.step(gradients, step);
        }
      }
  }
}

/// From step 3 on the other group is new, and has read what the first one saved.
TEST_P(Conformance, TheSameKeysGiveTheSameBytesAndSavedStateGoesOn) {
  for (const Shape& shape : kShapes) {
    if (compressor_->rounds(shape).empty()) continue;
    const auto n = static_cast<std::size_t>(shape.elements);
    for (const bool keeps : residual_choices(*compressor_)) {
      RankGroup one(*compressor_, shape, 2, keeps), other(*compressor_, shape, 2, keeps),
          resumed(*compressor_, shape, 2, keeps);
      for (std::uint64_t step = 0; step < 6; ++step) {
        if (step == 3) resumed.take(one);
        RankGroup& same = step < 3 ? other : resumed;
        const auto g = noise_of_ranks(n, 2, step);
        for (RankGroup* group : {&one, &same}) group->follow_phases(step);
        EXPECT_EQ(one.step(g, step), same.step(g, step)) << step;
        EXPECT_EQ(one.sent(), same.sent()) << step;
        for (int r = 0; r < 2; ++r) EXPECT_EQ(one.residual(r), same.residual(r));
      }
    }
  }
}

/// A mean of each rank's own, and noise: a few dozen sets that steps draw from.
class NoisyGradients {
 public:
  NoisyGradients(std::size_t n, int ranks) : ranks_(ranks) {
    for (std::size_t set = 0; set < kSets; ++set)
      for (int r = 0; r < ranks; ++r) {
        const auto rank = static_cast<std::uint64_t>(r);
        sets_.push_back(noise(n, random_key(set, rank)));
        const std::vector<float> own = noise(n, random_key(99, rank), 0.1f);
        for (std::size_t i = 0; i < n; ++i) sets_.back()[i] += own[i];
      }
  }
  std::vector<std::vector<float>> of_step(std::uint64_t step) const {
    const auto first = random_below(5, step, kSets) * static_cast<std::size_t>(ranks_);
    const auto begin = sets_.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + ranks_};
  }

 private:
  static constexpr std::size_t kSets = 48;
  int ranks_;
  std::vector<std::vector<float>> sets_;
};

/// At steps 12, 120 and the last one, warm-ups among them. What is owed stays bounded, too:
/// gradients are stationary noise with a mean, so the residual of the last steps is no larger than
/// that of steps long before. The rule that subtracts the mean of the ranks fails this. Each rank's
/// gradients have a mean of their own, so it grows with the steps.
TEST_P(Conformance, NothingIsLostOverThousandsOfStepsAndTheResidualStaysBounded) {
  const bool stays_bounded = compressor_->residual() == Residual::needed;
  const bool is_balanced = expected().split != Split::none;
  if (!has_residual()) return;
  for (const int ranks : {1, 2, 4}) {
    const bool goes_on = ranks == 4 && stays_bounded;
    if (!is_balanced && !goes_on) continue;
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    const NoisyGradients gradients(1024, ranks);
    RankGroup group(*compressor_, {1024, 32}, ranks, true);
    // A step adds to the residual, subtracts from it, and sums the ranks: ranks + 3 roundings of
    // at most what has been there so far, or in the type that travels.
    Ledger ledger(
        1024, (ranks + 3) * 0x1p-24 + ranks * expected().sum_error + expected().split_tolerance);
    const std::uint64_t balanced = ranks == 1 ? 120 : many_steps(2400);
    const std::uint64_t last = goes_on ? std::max<std::uint64_t>(balanced, 700) : balanced;
    double early = 0, late = 0;
    for (std::uint64_t step = 1; step <= last; ++step) {
      group.follow_phases(step - 1);
      const auto g = gradients.of_step(step);
      const std::vector<float> mean = group.step(g, step);
      ledger.add(g, mean, group.owed());
      if (is_balanced && (step == 12 || step == 120 || step == last)) ledger.expect_balanced();
      if (HasFatalFailure()) return;
      const double size = norm_of(group.residual(0));
      if (step > 200 && step <= 300) early += size / 100;
      if (step > last - 100) late += size / 100;
    }
    // That rule: 4.6 of 1200 steps, 2.6 of 700.
    if (goes_on) {
      EXPECT_LE(late, 1.3 * early);
    }
  }
}

/// Beyond every cache, sample and table of a kernel, with a tail; two steps, so that factors are
/// warm and thresholds known.
TEST_P(Conformance, LargeTensorsAreSentWhole) {
  const Shape large{1733 * 1731, 1733};  // of no block's size
  const auto n = static_cast<std::size_t>(large.elements);
  const bool keeps = residual_choices(*compressor_).back();
  const std::vector<float> some = noise(4099, 8);
  std::vector<float> gradient(n);
  for (std::size_t i = 0; i < n; ++i) gradient[i] = some[i * 7 % 4099] * some[i / 4099];
  RankGroup one(*compressor_, large, 1, keeps);
  for (std::uint64_t step = 0; step < 2; ++step) {
    std::vector<float> v = gradient;
    for (std::size_t i = 0; keeps && i < n; ++i) v[i] += one.residual(0)[i];
    const std::vector<float> sent = one.step({gradient}, step);
    EXPECT_TRUE(all_finite(sent));
    EXPECT_GT(largest_magnitude(sent), 0);
    if (keeps && expected().split != Split::none)
      expect_split(expected(), v, sent, one.residual(0));
    if (HasFatalFailure()) return;
  }
}

#if defined(__SSE__)
/// What a parameter of one rank gets in two steps as training codes it: by its own payloads,
/// through an owner, or dense by of_dense(). CodedTensor calls the codecs, and keeps denormals for
/// all.
std::vector<float> coded(const Compressor& compressor, const Shape& shape,
                         const std::vector<std::vector<float>>& steps, bool two_phase,
                         bool is_dense) {
  RanksOfTensor one(compressor, "method", two_phase, 1, shape, {}, is_dense);
  std::vector<float> all;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const std::vector<float> mean = one.step({steps[step]}, static_cast<std::int64_t>(step));
    all.insert(all.end(), mean.begin(), mean.end());
  }
  const CompressedTensorState left = one.tensor(0).state();
  all.insert(all.end(), left.residual.begin(), left.residual.end());
  return all;
}

/// A thread that flushes denormals to zero sends what one sends that does not, and keeps as much.
TEST_P(Conformance, FlushingDenormalsChangesNothing) {
  const Shape shape{513, 3};
  const std::vector<std::vector<float>> steps = {noise(513, 1, 1e-38f), noise(513, 2, 1e-39f)};
  const auto expect_same = [&](bool two_phase, bool is_dense) {
    SCOPED_TRACE(testing::Message() << "two-phase " << two_phase << ", dense " << is_dense);
    const std::uint32_t before = _mm_getcsr();
    const auto kept = coded(*compressor_, shape, steps, two_phase, is_dense);
    _mm_setcsr(before | 0x8040);
    const auto flushed = coded(*compressor_, shape, steps, two_phase, is_dense);
    EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u) << "the thread's own choice is not given back";
    _mm_setcsr(before);
    ASSERT_EQ(kept.size(), flushed.size());
    EXPECT_EQ(0, std::memcmp(kept.data(), flushed.data(), 4 * kept.size()));
  };
  if (!compressor_->rounds(shape).empty()) expect_same(false, false);
  if (fits_two_phase(*compressor_)) expect_same(true, false);
  if (compressor_->of_dense(shape)) expect_same(false, true);
}
#endif

TEST_P(Conformance, StateOfAnotherShapeIsRefused) {
  const auto codec = compressor_->codec({9000, 90});
  const SavedState saved = codec->save();
  const auto refused = [&](auto damage) {
    SavedState damaged = saved;
    damage(damaged);
    EXPECT_THROW(codec->load(damaged), InputError);
    EXPECT_EQ(codec->save(), saved);
  };
  refused([](SavedState& s) { s.push_back({"more", Passing::own, false, {}}); });
  for (std::size_t f = 0; f < saved.size(); ++f) {
    refused([f](SavedState& s) { s[f].bytes.push_back(std::byte{1}); });
    refused([f](SavedState& s) { s[f].bytes.pop_back(); });
    refused([f](SavedState& s) { s[f].name += "x"; });
    if (!saved[f].is_array || saved[f].bytes.empty()) continue;
    refused([f](SavedState& s) {  // a NaN
      std::fill_n(s[f].bytes.begin(), sizeof(float), std::byte{0xff});
    });
  }
}

/// A step that is dropped after everything was sent and decoded leaves every field as it was.
TEST_P(Conformance, ADroppedStepLeavesNoTrace) {
  const Shape shape{9000, 90};
  const auto n = static_cast<std::size_t>(shape.elements);
  RankGroup group(*compressor_, shape, 2, residual_choices(*compressor_).back());
  for (std::uint64_t step = 0; step < 5; ++step) {
    group.follow_phases(step);
    const std::vector<SavedState> before = {group.codec(0).save(), group.codec(1).save()};
    const auto g = noise_of_ranks(n, 2, step);
    const auto residuals = std::vector{group.residual(0), group.residual(1)};
    group.step_without_end(g, step);
    for (int r = 0; r < 2; ++r) {
      const auto i = static_cast<std::size_t>(r);
      EXPECT_EQ(group.codec(r).save(), before[i]) << "saved within step " << step;
      group.codec(r).drop();
      EXPECT_EQ(group.codec(r).save(), before[i]) << step;
      group.residual(r) = residuals[i];
    }
    group.step(g, step);
  }
}

class DamagedPayloads : public Conformance {
 protected:
  /// Two ranks that have encoded `round`: undamaged up to here.
  RankGroup encoded(const Shape& shape, int phase, int round) const {
    const auto n = static_cast<std::size_t>(shape.elements);
    RankGroup group(*compressor_, shape, 2, residual_choices(*compressor_).back());
    group.set_phase(phase);
    for (int r = 0; r <= round; ++r) {
      group.encode(r, {noise(n, 1), noise(n, 2)}, 0);
      if (r < round) group.decode(r);
    }
    return group;
  }
  /// visit(shape, phase, round) for all there are.
  template <class Visit>
  void for_rounds(const std::vector<Shape>& shapes, Visit visit) const {
    for (const Shape& shape : shapes)
      for (const int phase : phases_of(*compressor_)) {
        const auto rounds = static_cast<int>(rounds_of(*compressor_, shape, phase).size());
        for (int round = 0; round < rounds; ++round) visit(shape, phase, round);
      }
  }
};

Payload resized(const Payload& payload, std::size_t bytes) {
  Payload other(bytes);
  std::copy_n(payload.begin(), std::min(bytes, payload.size()), other.begin());
  return other;
}

TEST_P(DamagedPayloads, OfAnotherSizeAreRefused) {
  for_rounds({{33, 1}, {513, 3}, {9000, 90}}, [&](const Shape& shape, int phase, int round) {
    const std::size_t size = encoded(shape, phase, round).arrived().back().size();
    for (const std::size_t other : {std::size_t{0}, std::size_t{1}, std::size_t{3}, size / 2,
                                    size - 1, size + 1, size + 4, 2 * size}) {
      if (other == size) continue;
      RankGroup cut = encoded(shape, phase, round);
      cut.arrived().back() = resized(cut.arrived().back(), other);
      EXPECT_THROW(cut.decode_on(0, round), InputError) << other << " bytes for " << size;
    }
    RankGroup fewer = encoded(shape, phase, round);
    fewer.arrived().pop_back();
    EXPECT_THROW(fewer.decode_on(0, round), InputError) << "a rank's payload is not there";
  });
}

/// Any flipped bit: InputError, or a decoded tensor; what is outside stays untouched (sanitizers).
TEST_P(DamagedPayloads, WithFlippedBitsAreRefusedOrDecoded) {
  for_rounds({{33, 1}, {513, 3}}, [&](const Shape& shape, int phase, int round) {
    const std::size_t bits = 8 * encoded(shape, phase, round).arrived()[0].size();
    for (std::size_t trial = 0; trial < 200; ++trial) {
      RankGroup flipped = encoded(shape, phase, round);
      for (std::size_t f = 0; f < 1 + trial % 3; ++f) {
        const std::size_t bit = random_below(trial, f, bits);
        flipped.arrived()[0][bit / 8] ^= std::byte{1} << (bit % 8);
      }
      try {
        flipped.decode_on(0, round);
      } catch (const InputError&) {
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Registry, Conformance, testing::ValuesIn(all_expectations()),
                         name_of_test);
INSTANTIATE_TEST_SUITE_P(Registry, DamagedPayloads, testing::ValuesIn(all_expectations()),
                         name_of_test);

}  // namespace
}  // namespace linerate::compress
