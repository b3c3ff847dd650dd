// The modules against the table they are built from.
#include "linerate/zoo/network.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/kfac_options.hpp"
#include "linerate/models/catalogue.hpp"

namespace linerate::zoo {
namespace {

class EveryModel : public testing::TestWithParam<const char*> {};

TEST_P(EveryModel, HasTheTablesParametersInItsOrder) {
  const models::Description table = models::describe(GetParam());
  const Network network(table);
  std::size_t i = 0;
  for (const models::Node& node : table.nodes)
    for (const models::TensorSpec& p : node.parameters) {
      ASSERT_LT(i, network.parameters().size());
      const auto& [name, tensor] = network.parameters()[i++];
      EXPECT_EQ(name, node.name + "." + p.name);
      EXPECT_EQ(tensor.sizes().vec(), p.shape) << name;
    }
  EXPECT_EQ(i, network.parameters().size());
  std::int64_t buffer_bytes = 0;
  for (const auto& [name, tensor] : network.buffers())
    buffer_bytes += static_cast<std::int64_t>(tensor.nbytes());
  EXPECT_EQ(buffer_bytes, table.buffer_bytes());
}

// Small shapes: the whole forward pass of each in well under a second.
TEST_P(EveryModel, ForwardGivesTheTablesOutputShape) {
  const std::string name = GetParam();
  models::Options options;
  const bool tokens = models::describe(name).tokens();
  options.input = tokens ? models::Shape{8} : models::Shape{3, 32, 32};
  if (!tokens) options.classes = 10;
  Network network(models::describe(name, options));
  const c10::NoGradGuard no_grad;
  network.train(false);
  const at::Tensor x = tokens ? at::ones({2, 8}, at::kLong) : at::rand({2, 3, 32, 32});
  std::vector<std::int64_t> expected = network.description().output();
  expected.insert(expected.begin(), 2);
  EXPECT_EQ(network.forward(x).sizes().vec(), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         testing::Values("mlp", "lenet", "resnet18", "resnet50", "resnet101",
                                         "resnet152", "vgg16", "densenet201", "inception-v4",
                                         "bert-base", "gpt-small"));

struct Preconditioned {
  explicit Preconditioned(const std::string& name, const models::Options& options = {})
      : network(models::describe(name, options)),
        pre(network.layers(), tensors(),
            {.loss_average = torch_adapter::LossAverage{},
             .kl_clip = 0,
             .largest_factor = 512 * 3 * 3}) {}
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : network.parameters()) all.push_back(tensor);
    return all;
  }
  std::vector<std::string> refused() const {
    std::vector<std::string> names;
    for (const auto& line : pre.registration_report())
      if (!line.reason.empty()) names.push_back(line.name);
    return names;
  }
  Network network;
  torch_adapter::KFAC pre;
};

TEST(Kfac, PreconditionsEveryLayerOfAResNet) {
  Preconditioned resnet("resnet18", {.input = models::Shape{3, 32, 32}, .classes = 10});
  EXPECT_THAT(resnet.refused(), testing::IsEmpty());
  EXPECT_EQ(resnet.pre.registration_report().size(), 20u + 20u + 1u);
  resnet.network.forward(at::rand({2, 3, 32, 32})).square().sum().backward();
  const torch_adapter::KfacStep step = resnet.pre.step();
  EXPECT_THAT(step.plain, testing::IsEmpty());
  EXPECT_THAT(step.failures, testing::IsEmpty());
}

TEST(Kfac, LeavesPositionsAndTiedEmbeddingsOfTransformersAlone) {
  EXPECT_THAT(
      Preconditioned("bert-base").refused(),
      testing::ElementsAre("embeddings.position_embeddings", "embeddings.token_type_embeddings"));
  EXPECT_THAT(Preconditioned("gpt-small").refused(), testing::ElementsAre("wte", "wpe"));
}

}  // namespace
}  // namespace linerate::zoo
