// A compressor of one's own, registered by the program, trains under DataParallel by its name in
// the strategy's text, as examples/020-own-compressor.cpp plans with it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <stdexcept>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using compress::Arrived;
using compress::Input;
using compress::Shape;
using testing::AllOf;
using testing::HasSubstr;

/// Sends the first elements and owes the others.
class HeadCodec : public compress::Codec {
 public:
  explicit HeadCodec(std::size_t sent) : sent_(sent) {}
  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    for (std::size_t i = 0; i < input.gradient.size(); ++i) {
      const float v = input.gradient[i] + (input.residual.empty() ? 0 : input.residual[i]);
      if (i < sent_) std::memcpy(payload.data() + 4 * i, &v, 4);
      if (!input.residual.empty()) input.residual[i] = i < sent_ ? 0 : v;
    }
    return 4 * sent_;
  }
  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    std::fill(mean.begin(), mean.end(), 0.0f);
    std::memcpy(mean.data(), arrived.payloads.front().data(), 4 * sent_);
    for (std::size_t i = 0; i < sent_; ++i) mean[i] /= static_cast<float>(arrived.ranks);
  }

 private:
  std::size_t sent_;
};

class Head : public compress::Compressor {
 public:
  explicit Head(std::int64_t sent) : sent_(sent) {}
  std::vector<compress::Round> rounds(const Shape& shape) const override {
    if (sent_ >= shape.elements) return {};
    return {{.combine = compress::Combine::sum, .dtype = DType::f32, .bytes = 4 * sent_}};
  }
  std::unique_ptr<compress::Codec> codec(const Shape&) const override {
    return std::make_unique<HeadCodec>(static_cast<std::size_t>(sent_));
  }
  compress::Residual residual() const override { return compress::Residual::needed; }

 private:
  std::int64_t sent_;
};

std::unique_ptr<const compress::Compressor> make_head(doc::OptionReader& options) {
  const std::int64_t sent = options.integer("elements", 4);
  if (sent < 1) options.refuse("elements", "a whole number from 1 on");
  return std::make_unique<Head>(sent);
}

/// In what a compressor is wrong. All but the bytes of rounds() only where the gradient begins with
/// kCursed.
constexpr std::array<std::string_view, 8> kWrongs = {"more",   "fewer",    "no-codec", "encode",
                                                     "decode", "negative", "ragged",   "huge"};
constexpr float kCursed = 77;

class WrongCodec : public HeadCodec {
 public:
  WrongCodec(std::string_view wrong, std::int64_t n)
      : HeadCodec(static_cast<std::size_t>(n)), wrong_(wrong) {}
  std::size_t encode(int round, const Input& input, std::span<std::byte> payload) override {
    is_cursed_ = is_cursed_ || input.gradient[0] == kCursed;
    const std::size_t all = HeadCodec::encode(round, input, payload);
    EXPECT_EQ(payload.size(), all);
    if (is_cursed_ && wrong_ == "encode") throw std::runtime_error("no encode");
    if (is_cursed_ && wrong_ == "more") return all + 4096;
    return is_cursed_ && wrong_ == "fewer" ? all - 4 : all;
  }
  void decode(int, const Arrived&, std::span<float> mean) override {
    if (is_cursed_ && wrong_ == "decode") throw InputError("no decode");
    std::fill(mean.begin(), mean.end(), 0.0f);
  }

 private:
  std::string_view wrong_;
  bool is_cursed_ = false;
};

class WrongCompressor : public compress::Compressor {
 public:
  WrongCompressor(std::string_view wrong, bool sums) : wrong_(wrong), sums_(sums) {}
  std::vector<compress::Round> rounds(const Shape& shape) const override {
    std::int64_t bytes = 4 * shape.elements;
    if (wrong_ == "negative") bytes = -4;
    if (wrong_ == "ragged") bytes -= 1;
    if (wrong_ == "huge") bytes = std::int64_t{1} << 60;
    if (sums_) return {{.combine = compress::Combine::sum, .dtype = DType::f32, .bytes = bytes}};
    return {{.combine = compress::Combine::gather, .dtype = DType::u8, .bytes = bytes}};
  }
  std::unique_ptr<compress::Codec> codec(const Shape& shape) const override {
    if (wrong_ == "no-codec") return nullptr;
    return std::make_unique<WrongCodec>(wrong_, shape.elements);
  }
  compress::Residual residual() const override { return compress::Residual::none; }

 private:
  std::string_view wrong_;
  bool sums_;
};

std::unique_ptr<const compress::Compressor> make_wrong(doc::OptionReader& options) {
  const auto in = options.choice("in", {kWrongs.begin(), kWrongs.end()});
  const bool sums = options.choice("combine", {"gather", "sum"}) == 1;
  return std::make_unique<WrongCompressor>(kWrongs.at(in), sums);
}

class OwnCompressor : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    compress::register_compressor({"head", make_head, "The first elements.", "this test"});
    compress::register_compressor({"wrong", make_wrong, "Breaks its word.", "this test"});
  }
};

/// Gradients of one backward pass with these ranks' samples, after finish().
std::vector<at::Tensor> exchanged(comm::Communicator& c, const std::string& strategy,
                                  std::int64_t& bytes) {
  Mlp model;
  DataParallel parallel(model, c, {.strategy = strategy});
  loss_of(model, c.rank(), c.rank() + 0.5).backward();
  bytes = parallel.finish().bytes;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : model.parameters()) gradients.push_back(p.grad().flatten().clone());
  return gradients;
}

TEST_F_ON(OwnCompressor, IsUsedByItsNameWithItsOptions, comm::run_ranks, 2) {
  std::int64_t dense_bytes = 0;
  const std::vector<at::Tensor> dense = exchanged(communicator, "ddp", dense_bytes);
  for (const std::int64_t sent : {1, 4, 7}) {
    std::int64_t bytes = 0;
    const auto head = exchanged(
        communicator, "ddp+head(elements=" + std::to_string(sent) + ", dense_below=0)", bytes);
    EXPECT_LT(bytes, dense_bytes);
    for (std::size_t p = 0; p < head.size(); ++p) {
      const std::int64_t all = dense[p].numel(), here = std::min(sent, all);
      EXPECT_TRUE(head[p].narrow(0, 0, here).allclose(dense[p].narrow(0, 0, here), 1e-6, 1e-7));
      // A tensor with no more elements than are sent travels dense.
      if (sent < all) {
        EXPECT_EQ(head[p].narrow(0, sent, all - sent).abs().max().item<float>(), 0);
      }
    }
  }
}

TEST_F_ON(OwnCompressor, ItsOptionsAreCheckedOnEveryRank, comm::run_ranks, 2) {
  for (const char* wrong : {"ddp+head(elements=0)", "ddp+head(share=1)", "ddp+haed"}) {
    Mlp model;
    EXPECT_THROW(DataParallel(model, communicator, {.strategy = wrong}), UsageError) << wrong;
  }
}

/// Of rank 1 alone: it says what is wrong with whose codec, the others that it was rank 1.
TEST_F(OwnCompressor, ThatBreaksItsWordOnOneRankEndsTheRunOnAll) {
  const std::map<std::string, std::vector<std::string>> expected = {
      {"more", {"\"weight\"", "expected 4000 bytes", "found 8096"}},
      {"fewer", {"\"weight\"", "expected 4000 bytes", "found 3996"}},
      {"no-codec", {"1000 elements", "expected a codec", "found none"}},
      {"encode", {"no encode"}},
      {"decode", {"no decode"}}};
  for (const auto& [wrong, words] : expected)
    for (const std::string how : {"combine=sum", "exchange=gather", "exchange=two-phase"}) {
      const std::string strategy = "ddp+wrong(dense_below=0,in=" + wrong + "," + how + ")";
      std::atomic<int> ended = 0;
      const auto train = [&](comm::Communicator& c) {
        NamedTensors parameters = {{"weight", torch::zeros({10, 100}).requires_grad_()}};
        DataParallel parallel(parameters, {}, c, {.strategy = strategy});
        at::Tensor factor = torch::ones({10, 100});
        if (c.rank() == 1) factor[0][0] = kCursed;
        try {
          (parameters[0].second * factor).sum().backward();
          parallel.finish();
        } catch (const std::exception& e) {
          ++ended;
          const auto has = [&](const std::string& word) {
            return std::string_view(e.what()).find(word) != std::string::npos;
          };
          const bool is_told = has("rank 1 failed");
          // With collectives under way rank 1 tells that it ended the run, which may come first.
          EXPECT_TRUE(c.rank() == 1 || wrong == "no-codec" || is_told ||
                      has("rank 1 ended the run"))
              << strategy << e.what();
          for (const std::string& word : words)
            EXPECT_TRUE((c.rank() == 0 && !is_told) || has(word)) << strategy << e.what();
          EXPECT_TRUE(wrong == "encode" || wrong == "decode" || has("wrong(in=" + wrong))
              << strategy << e.what();
          throw;
        }
      };
      EXPECT_THROW(comm::run_ranks(2, train), std::exception) << strategy;
      EXPECT_EQ(ended, 2) << strategy;
    }
}

TEST_F_ON(OwnCompressor, IsRefusedOnEveryRankForBytesThatNoPayloadHas, comm::run_ranks, 2) {
  const std::map<std::string, std::string> found = {
      {"in=negative", "found -4"},
      {"in=huge", "found 1152921504606846976"},
      {"in=ragged,combine=sum", "expected whole elements of f32, found 3999 bytes"}};
  for (const auto& [options, words] : found) {
    const NamedTensors parameters = {{"weight", torch::zeros({10, 100}).requires_grad_()}};
    const std::string strategy = "ddp+wrong(dense_below=0," + options + ")";
    EXPECT_THAT(
        thrown_by([&] { DataParallel(parameters, {}, communicator, {.strategy = strategy}); }),
        AllOf(HasSubstr("compressor wrong("), HasSubstr("rounds() of 1000 elements in 10 rows"),
              HasSubstr(words)));
  }
}

TEST_F(OwnCompressor, HasANameThatStrategiesCanSay) {
  for (const char* name : {"", " ", "a b", " a", "a(b)", "a+b", "a,b", "a=b", "\xc3\xa4", "a\n"})
    EXPECT_THAT(thrown_by([&] {
                  compress::register_compressor({name, make_head, "", ""});
                }),
                HasSubstr("letters, digits, \"-\" and \"_\""));
  for (const char* name : {"topk", "head", "auto", "codec", "kfac"})
    EXPECT_THROW(compress::register_compressor({name, make_head, "", ""}), UsageError) << name;
  EXPECT_THROW(compress::register_compressor({"made-by-nobody", nullptr, "", ""}), UsageError);
  EXPECT_THROW(static_cast<void>(compress::compressors().at("made-by-nobody")), UsageError);
}

/// It codes memory of the host.
TEST_F_ON(OwnCompressor, IsRefusedWhereStepsAreEnqueued, comm::run_ranks, 2) {
  const GroupOverCommunicator group("of own compressors", communicator);
  Mlp model;
  const DataParallelOptions options{.strategy = "ddp+head(elements=2)",
                                    .device_group = group.name()};
  EXPECT_THAT(
      thrown_by([&] { DataParallel(model, communicator, options); }),
      AllOf(HasSubstr("by a compressor of linerate's"), HasSubstr("found \"head(elements=2)\"")));
}

}  // namespace
}  // namespace linerate::torch_adapter
