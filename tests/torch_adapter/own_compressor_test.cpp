// A compressor of one's own, registered by the program, trains under DataParallel by its name in
// the strategy's text, as examples/020-own-compressor.cpp plans with it.
#include <algorithm>
#include <cstring>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/parity.hpp"

namespace linerate::torch_adapter {
namespace {

using compress::Arrived;
using compress::Input;
using compress::Shape;

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

class OwnCompressor : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    compress::register_compressor({"head", make_head, "The first elements.", "this test"});
  }
};

/// Gradients of one backward pass with these ranks' samples, after finish().
std::vector<at::Tensor> exchanged(comm::Communicator& c, const std::string& strategy,
                                  std::int64_t& bytes) {
  Mlp model;
  model.to(at::kFloat);
  DataParallel parallel(model, c, {.strategy = strategy});
  mean_loss(model.forward(numbers({kBatch, 6}, c.rank(), at::kFloat)),
            numbers({kBatch, 3}, c.rank() + 0.5, at::kFloat))
      .backward();
  bytes = parallel.finish().bytes;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : model.parameters()) gradients.push_back(p.grad().flatten().clone());
  return gradients;
}

TEST_F(OwnCompressor, IsUsedByItsNameWithItsOptions) {
  comm::run_ranks(2, [](comm::Communicator& c) {
    std::int64_t dense_bytes = 0;
    const std::vector<at::Tensor> dense = exchanged(c, "ddp", dense_bytes);
    for (const std::int64_t sent : {1, 4, 7}) {
      std::int64_t bytes = 0;
      const auto head = exchanged(c, "ddp+head(elements=" + std::to_string(sent) + ")", bytes);
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
  });
}

TEST_F(OwnCompressor, KeepsWhatItOwesInCheckpoints) {
  comm::run_ranks(2, [](comm::Communicator& c) {
    Mlp model;
    model.to(at::kFloat);
    DataParallel parallel(model, c, {.strategy = "bulk+head(elements=2)"});
    mean_loss(model.forward(numbers({kBatch, 6}, c.rank(), at::kFloat)),
              numbers({kBatch, 3}, 0.5, at::kFloat))
        .backward();
    parallel.finish();
    const std::vector<std::string> state = parallel.compression_state();
    ASSERT_EQ(state.size(), 2u);
    parallel.load_compression_state(state, "here");
    EXPECT_EQ(parallel.compression_state(), state);
  });
}

TEST_F(OwnCompressor, ItsOptionsAreCheckedOnEveryRank) {
  comm::run_ranks(2, [](comm::Communicator& c) {
    for (const char* wrong : {"ddp+head(elements=0)", "ddp+head(share=1)", "ddp+haed"}) {
      Mlp model;
      model.to(at::kFloat);
      EXPECT_THROW(DataParallel(model, c, {.strategy = wrong}), UsageError) << wrong;
    }
  });
}

/// It codes memory of the host.
TEST_F(OwnCompressor, IsRefusedWhereStepsAreEnqueued) {
  comm::run_ranks(2, [](comm::Communicator& c) {
    const GroupOverCommunicator group("of own compressors", c);
    Mlp model;
    model.to(at::kFloat);
    try {
      DataParallel(model, c, {.strategy = "ddp+head(elements=2)", .device_group = group.name()});
      ADD_FAILURE() << "it was taken";
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("by a compressor of linerate's"));
      EXPECT_THAT(e.what(), testing::HasSubstr("found \"head(elements=2)\""));
    }
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
