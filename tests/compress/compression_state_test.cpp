#include "linerate/compress/two_phase.hpp"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include <cmath>

#include "compress/exchanged.hpp"
#include "compress/inputs.hpp"
#include "compress/rank_group.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

using testing::HasSubstr;

SavedField array_of(std::string name, Passing passing, std::vector<float> values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), passing, true, {bytes.begin(), bytes.end()}};
}
SavedField number_of(std::string name, std::uint8_t value) {
  return {std::move(name), Passing::own, false, {std::byte{value}}};
}

CompressionState state_of_rank(float x) {
  CompressionState state{7, {}};
  state.tensors["a"] = {
      2,
      {x, 2 * x},
      "method",
      {array_of("owed", Passing::mean, {x, -x}), array_of("factor", Passing::same, {5, 6, 7}),
       number_of("counter", static_cast<std::uint8_t>(x))},
      {}};
  state.tensors["b"] = {1, {}, "", {}, {}};
  return state;
}

bool same(const CompressionState& x, const CompressionState& y) {
  return x.step == y.step && x.tensors == y.tensors;
}

TEST(CompressionState, SurvivesItsBytes) {
  CompressionState before = state_of_rank(1.5f);
  before.tensors["c"] = {3,
                         {1, 2, 3},
                         "two-phase",
                         {},
                         {{{array_of("m", Passing::same, {1, 2})}, {}},
                          {array_of(std::string(kServerResidual), Passing::own, {4})}}};
  EXPECT_TRUE(same(compression_state_from(to_bytes(before), "file"), before));
}

/// Cut anywhere, or followed by something: an error that names the file, never an overrun.
TEST(CompressionState, DamagedBytesAreRefused) {
  const std::string whole = to_bytes(state_of_rank(1));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::string cut = whole.substr(0, n);
    EXPECT_THROW(compression_state_from(cut, "file"), InputError) << n;
  }
  EXPECT_THROW(compression_state_from(whole + "x", "file"), InputError);
}

TEST(CompressionState, OfAnotherVersionIsRefusedByName) {
  std::string old = to_bytes(state_of_rank(1));
  old.replace(0, 22, "linerate compression 2");
  EXPECT_THAT([&] { compression_state_from(old, "run.ckpt"); },
              testing::ThrowsMessage<InputError>(
                  testing::AllOf(HasSubstr("run.ckpt"), HasSubstr("version 3"))));
}

/// As many ranks go on with their own; another number as each field says.
TEST(CompressionState, OfAnotherNumberOfRanksGoesByTheFields) {
  const std::vector<CompressionState> parts = {state_of_rank(1), state_of_rank(4),
                                               state_of_rank(7)};
  for (int r = 0; r < 3; ++r)
    EXPECT_TRUE(same(state_for(r, 3, parts), parts[static_cast<std::size_t>(r)]));
  for (const int ranks : {1, 2, 4, 5})
    for (int r = 0; r < ranks; ++r) {
      const CompressedTensorState got = state_for(r, ranks, parts).tensors.at("a");
      EXPECT_EQ(got.residual, (std::vector<float>{4, 8}));
      ASSERT_EQ(got.codec.size(), 3u);
      EXPECT_EQ(floats_in(got.codec[0].bytes), (std::vector<float>{4, -4}));
      EXPECT_EQ(floats_in(got.codec[1].bytes), (std::vector<float>{5, 6, 7}));
      EXPECT_EQ(got.codec[2].bytes[0],
                parts[static_cast<std::size_t>(r) % 3].tensors.at("a").codec[2].bytes[0]);
    }
}

/// What owners and ranks owe each element stays what it was, whatever the chunks are now. Nor does
/// it matter that there are no owners any more: a parameter's buckets may be gathered now.
TEST(CompressionState, ResidualsOfOwnersSurviveOtherRanksAndAnExchangeWithoutOwners) {
  const Shape shape{30'000, 1};
  for (const char* text : {"efsignsgd", "topk(density=0.01)", "onebit"}) {
    const auto compressor = made(text);
    RanksOfTensor three(*compressor, text, true, 3, shape);
    for (std::int64_t step = 0; step < 4; ++step) three.step(noise_of_ranks(30'000, 3, step), step);
    const std::vector<double> owed = three.owed();
    double largest = 0;
    for (const double x : owed) largest = std::max(largest, std::abs(x));
    ASSERT_GT(largest, 0) << text;
    for (const bool has_owners : {true, false})
      for (const int ranks : {1, 2, 3, 4, 8}) {
        const std::string label = has_owners ? text : fmt::format("{}, gathered", text);
        const RanksOfTensor others(*compressor, label, has_owners, ranks, shape, three.save());
        const std::vector<double> now = others.owed();
        for (std::size_t i = 0; i < owed.size(); ++i)
          ASSERT_NEAR(now[i], owed[i], 1e-6 * largest) << label << ", " << ranks << " ranks, " << i;
      }
  }
}

/// dgc keeps what it owes in a field of its own: by other options it goes on with it, another
/// compressor has it as its residual.
TEST(CompressionState, UnsentValuesSurviveOtherOptionsAndAnotherCompressor) {
  const Shape shape{600, 20};
  const auto dgc = made("dgc(density=0.1)"), sparser = made("dgc(density=0.05)"),
             topk = made("topk(density=0.1)");
  RanksOfTensor one(*dgc, "dgc(density=0.1)", false, 1, shape);
  for (std::int64_t step = 0; step < 3; ++step)
    one.step({noise(600, static_cast<std::uint64_t>(step))}, step);
  CodedTensor& tensor = one.tensor(0);
  const SavedState before = tensor.state().codec;
  ASSERT_EQ(before.size(), 2u);
  ASSERT_EQ(before[1].passing, Passing::owed);
  tensor.use({"dgc(density=0.05)", sparser.get()});
  EXPECT_EQ(tensor.state().codec, before);
  tensor.use({"topk(density=0.1)", topk.get()});
  EXPECT_EQ(tensor.state().residual, floats_in(before[1].bytes));
}

/// A moving average of 30,000 elements, cut for owners, some of whom have nothing, and joined
/// again.
TEST(CompressionState, MomentumGoesOnByTheOtherExchange) {
  const Shape shape{30'000, 1};
  const auto compressor = made("onebit-adam");
  CodedTensor tensor("g", shape, {});
  const SavedField moment = array_of("momentum", Passing::same, noise(30'000, 5));
  tensor = CodedTensor("g", shape, {shape.elements, {}, "onebit-adam", {moment}, {}});
  tensor.use({"onebit-adam(exchange=two-phase)", compressor.get(), true, 1, 20});
  EXPECT_EQ(tensor.state().two_phase.workers.size(), 20u);
  tensor.use({"onebit-adam", compressor.get()});
  EXPECT_EQ(tensor.state().codec, SavedState{moment});
}

/// Over the registry: what ranks have in common they have in common after it, and the mean of what
/// they owe is what it was.
TEST(CompressionState, EveryCodecGoesOnOnAnotherNumberOfRanks) {
  const Shape shape{9000, 90};
  const auto n = static_cast<std::size_t>(shape.elements);
  for (const std::string& name : compressors().names()) {
    const auto compressor = made(name);
    if (compressor->rounds(shape).empty()) continue;
    RankGroup group(*compressor, shape, 3, keeps_residual(*compressor));
    for (std::uint64_t step = 0; step < 4; ++step) group.step(noise_of_ranks(n, 3, step), step);
    std::vector<CompressionState> parts;
    for (int r = 0; r < 3; ++r)
      parts.push_back(
          {4, {{"g", {shape.elements, group.residual(r), name, group.codec(r).save(), {}}}}});
    for (const int ranks : {1, 2, 5})
      for (int r = 0; r < ranks; ++r) {
        const CompressedTensorState got = state_for(r, ranks, parts).tensors.at("g");
        const auto codec = compressor->codec(shape);
        ASSERT_NO_THROW(codec->load(got.codec)) << name;
        for (std::size_t f = 0; f < got.codec.size(); ++f) {
          if (got.codec[f].passing == Passing::own) continue;
          const std::vector<float> values = floats_in(got.codec[f].bytes);
          std::vector<std::vector<float>> saved;
          for (const CompressionState& part : parts)
            saved.push_back(floats_in(part.tensors.at("g").codec[f].bytes));
          for (std::size_t i = 0; i < values.size(); ++i) {
            const double mean = (double{saved[0][i]} + saved[1][i] + saved[2][i]) / 3;
            ASSERT_NEAR(values[i], mean, 1e-6 * (1 + std::abs(mean)))
                << name << ", " << got.codec[f].name << " of " << i;
          }
        }
      }
  }
}

TEST(TwoPhase, ChunksCoverTheTensor) {
  for (const std::int64_t n : {0, 1, 31, 4096, 4097, 40'003, 72'000})
    for (const int ranks : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (const Chunk& chunk : cut_into_chunks(n, ranks)) {
        EXPECT_EQ(chunk.first, next);
        next += chunk.elements;
        EXPECT_TRUE(chunk.elements % kChunkMultiple == 0 || next == n) << "only the last is cut";
      }
      EXPECT_EQ(next, n);
    }
}

/// (1/W) sum of gradients = sum of means + (1/W) sum e + s at every element after 20 steps, odd W
/// among them, empty chunks, and one that is too small to be coded (8194: 4096, 4096 and 2).
TEST(TwoPhase, NothingIsLostBetweenWorkersAndServers) {
  for (const char* strategy : {"efsignsgd", "onebit", "onebit-adam(beta=0)"})
    for (const std::int64_t n : {8194, 20'003})
      for (const int ranks : {1, 2, 3, 4}) {
        const auto compressor = make_compressor(doc::parse_component(strategy));
        RanksOfTensor group(*compressor, strategy, true, ranks, {n, 1});
        SCOPED_TRACE(fmt::format("{}, {} elements, {} ranks", strategy, n, ranks));
        const auto size = static_cast<std::size_t>(n);
        // Each of the terms is rounded by at most ranks + 4 operations a step.
        Ledger ledger(size, (ranks + 4) * 0x1p-23);
        for (std::int64_t step = 0; step < 20; ++step) {
          const auto gradients = noise_of_ranks(size, ranks, step);
          const std::vector<float> mean = group.step(gradients, step);
          ledger.add(gradients, mean, group.owed());
        }
        ledger.expect_balanced();
      }
}

/// A vote of one payload is that payload: the owners' votes arrive as they were cast.
TEST(TwoPhase, MajorityIsThatOfTheAllGather) {
  const auto compressor = make_compressor(doc::parse_component("signsgd"));
  for (const int ranks : {2, 3, 5}) {
    const auto gradients = noise_of_ranks(20'003, ranks, 0);
    RankGroup gathered(*compressor, {20'003, 1}, ranks, false);
    RanksOfTensor two(*compressor, "signsgd", true, ranks, {20'003, 1});
    EXPECT_EQ(two.step(gradients, 0), gathered.step(gradients, 0));
  }
}

TEST(TwoPhase, SummedAndSeveralRoundsAreRefused) {
  EXPECT_THROW(TwoPhase(*make_compressor({"fp16", {}}), 5000, 2, 0), UsageError);
}

}  // namespace
}  // namespace linerate::compress
