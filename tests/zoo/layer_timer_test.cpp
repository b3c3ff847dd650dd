// The layer timer: spans touch and cover the pass, every layer and gradient is seen, silence is an
// error.
#include "linerate/torch_adapter/layer_timer.hpp"

#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/zoo/network.hpp"

namespace linerate::torch_adapter {
namespace {

TEST(LayerTimer, CoversForwardAndBackwardOfAResNet) {
  zoo::Network network(models::describe(
      "resnet18",
      {.input = models::Shape{3, 32, 32}, .classes = 10, .variant = models::Variant::published}));
  network.train(true);
  LayerTimer timer(network.parameters());
  EXPECT_EQ(timer.layers().size(), 41u);  // 20 convolutions, 20 batch norms, one linear
  for (int step = 0; step < 2; ++step) {
    timer.begin_forward();
    const at::Tensor loss = network.forward(at::rand({2, 3, 32, 32})).sum();
    timer.begin_backward();
    loss.backward();
    const StepSpans s = timer.end();
    for (const auto* spans : {&s.forward, &s.backward}) {
      std::vector<bool> seen(41, false);
      for (std::size_t i = 0; i < spans->size(); ++i) {
        seen[static_cast<std::size_t>((*spans)[i].layer)] = true;
        if (i > 0) {
          EXPECT_EQ((*spans)[i].start_ns, (*spans)[i - 1].end_ns);
        }
      }
      EXPECT_THAT(seen, testing::Each(true));
    }
    EXPECT_EQ(s.forward.front().start_ns, s.forward_start_ns);
    EXPECT_EQ(s.forward.back().end_ns, s.forward_end_ns);
    EXPECT_EQ(s.backward.front().start_ns, s.backward_start_ns);
    EXPECT_EQ(s.backward.back().end_ns, s.backward_end_ns);
    EXPECT_EQ(s.backward.front().layer, 40);  // the head comes first
    EXPECT_EQ(s.backward.back().layer, 0);
    for (const std::int64_t ready : s.ready_ns) {
      EXPECT_GE(ready, s.backward_start_ns);
      EXPECT_LE(ready, s.backward_end_ns);
    }
  }
}

TEST(LayerTimer, NamesLayersThatNobodyRead) {
  const at::Tensor used = at::rand({2, 2}).requires_grad_(),
                   idle = at::rand({2, 2}).requires_grad_();
  LayerTimer timer({{"used.weight", used}, {"idle.weight", idle}});
  timer.begin_forward();
  at::matmul(used, used);
  EXPECT_THAT([&] { timer.begin_backward(); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("idle")));
}

TEST(LayerTimer, RefusesLayersThatShareMemory) {
  const at::Tensor one = at::rand({2, 2}).requires_grad_();
  EXPECT_THROW(LayerTimer({{"a.weight", one}, {"b.weight", one}}), UsageError);
}

}  // namespace
}  // namespace linerate::torch_adapter
