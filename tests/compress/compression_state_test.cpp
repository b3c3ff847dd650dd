#include "linerate/compress/two_phase.hpp"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include <cmath>
#include <cstring>

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
std::vector<float> floats_of(const SavedField& field) {
  std::vector<float> values(field.bytes.size() / 4);
  if (!values.empty()) std::memcpy(values.data(), field.bytes.data(), field.bytes.size());
  return values;
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
  old.replace(0, std::strlen("linerate compression 3"), "linerate compression 2");
  try {
    compression_state_from(old, "run.ckpt");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("run.ckpt"), HasSubstr("version 3")));
  }
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
      EXPECT_EQ(floats_of(got.codec[0]), (std::vector<float>{4, -4}));
      EXPECT_EQ(floats_of(got.codec[1]), (std::vector<float>{5, 6, 7}));
      EXPECT_EQ(got.codec[2].bytes[0],
                parts[static_cast<std::size_t>(r) % 3].tensors.at("a").codec[2].bytes[0]);
    }
}

/// The ranks of one parameter, as training has them.
class Ranks {
 public:
  Ranks(const Compressor& compressor, const std::string& label, bool two_phase, int ranks,
        const Shape& shape, const std::vector<CompressionState>& saved = {})
      : compressor_(compressor), ranks_(ranks), n_(static_cast<std::size_t>(shape.elements)) {
    for (int r = 0; r < ranks; ++r) {
      CompressionState own = state_for(r, ranks, saved);
      tensors_.emplace_back("g", shape, saved.empty() ? CompressedTensorState{} : own.tensors["g"]);
      tensors_.back().use({label, &compressor, two_phase, r, ranks});
    }
  }

  /// Through the owners.
  void step(std::int64_t number) {
    std::vector<std::vector<float>> gradients;
    for (int r = 0; r < ranks_; ++r)
      gradients.push_back(noise(n_, static_cast<std::uint64_t>(10 * number + r)));
    std::vector<RankOfExchange> exchange;
    for (int r = 0; r < ranks_; ++r) {
      std::vector<float>& gradient = gradients[static_cast<std::size_t>(r)];
      at(r).begin_step(3, number, r, gradient);
      exchange.push_back({at(r).two_phase(), at(r).keys(), gradient, at(r).next_residual()});
    }
    exchange_tensor(compressor_, exchange);
    for (int r = 0; r < ranks_; ++r) at(r).keep();
  }

  std::vector<CompressionState> save() const {
    std::vector<CompressionState> parts;
    for (const CodedTensor& tensor : tensors_) parts.push_back({1, {{"g", tensor.state()}}});
    return parts;
  }

  /// What is owed to the mean of gradients, by element: the ranks' mean and the owners' part.
  std::vector<double> owed() const {
    std::vector<double> sum(n_);
    std::size_t at = 0;
    for (const CodedTensor& tensor : tensors_) {
      const CompressedTensorState s = tensor.state();
      for (std::size_t i = 0; i < s.residual.size(); ++i) sum[i] += s.residual[i] / double(ranks_);
      for (const SavedField& field : s.two_phase.server)
        if (field.name == kServerResidual)
          for (const float x : floats_of(field)) sum.at(at++) += x;
    }
    return sum;
  }

 private:
  CodedTensor& at(int r) { return tensors_[static_cast<std::size_t>(r)]; }

  const Compressor& compressor_;
  int ranks_;
  std::size_t n_;
  std::vector<CodedTensor> tensors_;
};

/// What owners and ranks owe each element stays what it was, whatever the chunks are now.
TEST(CompressionState, ResidualsOfOwnersSurviveAnotherNumberOfRanks) {
  const Shape shape{30'000, 1};
  for (const char* text : {"efsignsgd", "topk(density=0.01)", "onebit"}) {
    const auto compressor = made(text);
    Ranks three(*compressor, text, true, 3, shape);
    for (int step = 0; step < 4; ++step) three.step(step);
    const std::vector<double> owed = three.owed();
    double largest = 0;
    for (const double x : owed) largest = std::max(largest, std::abs(x));
    ASSERT_GT(largest, 0) << text;
    for (const int ranks : {1, 2, 4, 8}) {
      const Ranks others(*compressor, text, true, ranks, shape, three.save());
      const std::vector<double> now = others.owed();
      for (std::size_t i = 0; i < owed.size(); ++i)
        ASSERT_NEAR(now[i], owed[i], 1e-6 * largest) << text << ", " << ranks << " ranks, " << i;
    }
  }
}

/// Nor does it matter that there are no owners any more: a parameter's buckets may be gathered now.
TEST(CompressionState, ResidualsOfOwnersSurviveAnExchangeWithoutOwners) {
  const Shape shape{30'000, 1};
  for (const char* text : {"efsignsgd", "topk(density=0.01)", "onebit"}) {
    const auto compressor = made(text);
    Ranks three(*compressor, fmt::format("{}, by owners", text), true, 3, shape);
    for (int step = 0; step < 4; ++step) three.step(step);
    const std::vector<double> owed = three.owed();
    double largest = 0;
    for (const double x : owed) largest = std::max(largest, std::abs(x));
    for (const int ranks : {1, 2, 3, 8}) {
      const Ranks others(*compressor, text, false, ranks, shape, three.save());
      const std::vector<double> now = others.owed();
      for (std::size_t i = 0; i < owed.size(); ++i)
        ASSERT_NEAR(now[i], owed[i], 1e-6 * largest) << text << ", " << ranks << " ranks, " << i;
    }
  }
}

/// One rank's tensor after three steps of a gathered method.
CodedTensor after_steps(const Compressor& compressor, const std::string& label,
                        const Shape& shape) {
  CodedTensor tensor("g", shape, {});
  tensor.use({label, &compressor});
  std::vector<std::byte> payload(static_cast<std::size_t>(compressor.rounds(shape)[0].bytes));
  for (std::int64_t step = 0; step < 3; ++step) {
    std::vector<float> gradient =
        noise(static_cast<std::size_t>(shape.elements), static_cast<std::uint64_t>(step));
    tensor.begin_step(3, step, 0, gradient);
    tensor.encode(0, gradient, 1, -1, payload);
    tensor.keep();
  }
  return tensor;
}

/// dgc keeps what it owes in a field of its own: by other options it goes on with it, another
/// compressor has it as its residual.
TEST(CompressionState, UnsentValuesSurviveOtherOptionsAndAnotherCompressor) {
  const Shape shape{600, 20};
  const auto dgc = made("dgc(density=0.1)"), sparser = made("dgc(density=0.05)"),
             topk = made("topk(density=0.1)");
  CodedTensor tensor = after_steps(*dgc, "dgc(density=0.1)", shape);
  const SavedState before = tensor.state().codec;
  ASSERT_EQ(before.size(), 2u);
  ASSERT_EQ(before[1].passing, Passing::owed);
  tensor.use({"dgc(density=0.05)", sparser.get()});
  EXPECT_EQ(tensor.state().codec, before);
  tensor.use({"topk(density=0.1)", topk.get()});
  EXPECT_EQ(tensor.state().residual, floats_of(before[1]));
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
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<std::vector<float>> g;
      for (std::uint64_t r = 0; r < 3; ++r) g.push_back(noise(n, 3 * step + r));
      group.step(g, step);
    }
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
          const std::vector<float> values = floats_of(got.codec[f]);
          std::vector<std::vector<float>> saved;
          for (const CompressionState& part : parts)
            saved.push_back(floats_of(part.tensors.at("g").codec[f]));
          for (std::size_t i = 0; i < values.size(); ++i) {
            const double mean = (double{saved[0][i]} + saved[1][i] + saved[2][i]) / 3;
            ASSERT_NEAR(values[i], mean, 1e-6 * (1 + std::abs(mean)))
                << name << ", " << got.codec[f].name << " of " << i;
          }
        }
      }
  }
}

}  // namespace
}  // namespace linerate::compress
