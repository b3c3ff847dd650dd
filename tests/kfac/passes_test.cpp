// What models do with their layers: in place, twice, frozen, in eval mode, checkpointed, in other
// ways.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/utils.h>

#include <thread>

#include "kfac/factor_oracle.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using Over = LossAverage::Over;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

KfacOptions empirical() { return plain_options(Over::batch, Fisher::empirical); }

/// Two layers with something between them.
template <typename First, typename Second>
struct Pair : torch::nn::Module {
  First first;
  Second second;
  std::function<at::Tensor(const at::Tensor&)> between;
  Pair(First a, Second b, std::function<at::Tensor(const at::Tensor&)> f)
      : first(std::move(a)), second(std::move(b)), between(std::move(f)) {
    register_module("first", first), register_module("second", second);
    set_weights(*this, 300);
  }
  at::Tensor forward(const at::Tensor& x) { return second->forward(between(first->forward(x))); }
};

using LinearPair = Pair<torch::nn::Linear, torch::nn::Linear>;
LinearPair tanh_pair(std::int64_t between = 5, std::int64_t outputs = 2) {
  return LinearPair(torch::nn::Linear(4, between), torch::nn::Linear(between, outputs),
                    [](const at::Tensor& y) { return torch::tanh(y); });
}

/// Packed A and G of all layers after a step's passes.
at::Tensor factors_in(KFAC& pre) {
  std::vector<at::Tensor> all;
  for (const auto& block : KfacInside::preconditioner(pre).blocks())
    for (const FactorSide side : {FactorSide::a, FactorSide::g})
      all.push_back(block->batch_factor(side));
  return torch::cat(all);
}
template <typename Model>
at::Tensor all_factors(Model& model, const at::Tensor& x) {
  KFAC pre(model, empirical());
  (model.forward(x).square().sum() / x.size(0)).backward();
  return factors_in(pre);
}

template <typename First, typename Second>
void expect_in_place_changes_nothing(First first, Second second, const at::Tensor& x) {
  Pair aside(first, second, [](const at::Tensor& y) { return torch::relu(y); });
  Pair in_place(first, second, [](at::Tensor y) { return torch::relu_(y); });
  const at::Tensor expected = all_factors(aside, x);
  EXPECT_LE(error_of(all_factors(in_place, x), expected), 1e-14);
}

TEST(InPlace, AReluAfterAnyLayerChangesNoFactor) {
  using namespace torch::nn;
  expect_in_place_changes_nothing(Linear(4, 5), Linear(5, 2), noise({3, 4}, 301));
  expect_in_place_changes_nothing(Linear(4, 5), Linear(5, 2), noise({3, 6, 4}, 302));
  expect_in_place_changes_nothing(Linear(LinearOptions(4, 5).bias(false)), Linear(5, 2),
                                  noise({3, 6, 4}, 302));
  expect_in_place_changes_nothing(Conv2d(Conv2dOptions(2, 3, 3)), Conv2d(Conv2dOptions(3, 2, 2)),
                                  noise({3, 2, 6, 5}, 303));
  expect_in_place_changes_nothing(BatchNorm2d(2), Conv2d(Conv2dOptions(2, 2, 3)),
                                  noise({3, 2, 6, 5}, 304));
}

TEST(InPlace, LaterChangesOfAnInputChangeNoFactor) {
  torch::nn::Linear layer = weighted(4, 2, 305);
  KFAC pre(*layer, empirical());
  at::Tensor x = noise({3, 4}, 306);
  layer(x).sum().backward();  // the first batch's input waits for targets, if any come
  layer->zero_grad();
  const at::Tensor joint = torch::cat({x.clone(), torch::ones({3, 1}, at::kDouble)}, 1);
  layer(x);
  x.zero_();
  EXPECT_LE(error_of(batch_factor(pre, 0, FactorSide::a)[0], joint.t().matmul(joint) / 3), 1e-14);
}

TEST(Uses, OfATiedLayerAddUp) {
  torch::nn::Linear layer = weighted(3, 3, 310);
  const at::Tensor x = noise({4, 3}, 311);
  const at::Tensor one = torch::ones({4, 1}, at::kDouble);
  KFAC pre(*layer, plain_options(Over::sum, Fisher::empirical));
  const at::Tensor y = layer(x);
  y.retain_grad();
  const at::Tensor z = layer(torch::tanh(y));
  z.retain_grad();
  z.square().sum().backward();
  const at::Tensor in =
      torch::cat({torch::cat({x, one}, 1), torch::cat({torch::tanh(y).detach(), one}, 1)});
  EXPECT_LE(error_of(batch_factor(pre, 0, FactorSide::a)[0], in.t().matmul(in) / 8), 1e-14);
  const at::Tensor out = torch::cat({y.grad(), z.grad()});
  EXPECT_LE(error_of(batch_factor(pre, 0, FactorSide::g)[0], out.t().matmul(out)), 1e-14);
}

/// An embedding whose weight is the last layer's too, as language models tie them.
struct Tied : torch::nn::Module {
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(5, 3));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(3, 3));
  torch::nn::Linear last =
      register_module("last", torch::nn::Linear(torch::nn::LinearOptions(3, 5).bias(false)));
  Tied() {
    set_weights(*this, 312);
    last->weight = words->weight;
  }
};

/// Reasons of the report by layer.
std::vector<std::string> reasons(const KFAC& pre) {
  std::vector<std::string> all;
  for (const RegisteredLayer& line : pre.registration_report()) all.push_back(line.reason);
  return all;
}

TEST(Registration, LeavesAWeightOfTwoKindsOfLayersAlone) {
  Tied model;
  KFAC pre(model, empirical());
  EXPECT_THAT(reasons(pre), ElementsAre(HasSubstr("shares its weight with \"last\""), IsEmpty(),
                                        HasSubstr("shares its weight with \"words\"")));
  EXPECT_EQ(KfacInside::preconditioner(pre).blocks().size(), 1u);
}

TEST(Registration, RefusesLayersWithoutMemory) {
  const auto away = at::TensorOptions().device(torch::kMeta).dtype(at::kDouble);
  torch::nn::Linear whole(3, 2);
  whole->weight = torch::empty({2, 3}, away).requires_grad_();
  const auto said = [](torch::nn::Linear& layer, std::vector<std::string> skip = {}) {
    return thrown_by([&] {
      KfacOptions options = empirical();
      options.skip = std::move(skip);
      torch::nn::Sequential net(layer);
      KFAC(*net, options);
    });
  };
  EXPECT_THAT(said(whole), testing::AllOf(HasSubstr("layer \"0\": its weight lies on meta"),
                                          HasSubstr("expected memory"), HasSubstr("`skip`")));
  EXPECT_THAT(said(whole, {"*"}), IsEmpty());
  const LayerSpec spec{.name = "own",
                       .kind = LayerKind::linear,
                       .weight = torch::empty({2, 3}, at::kDouble).requires_grad_(),
                       .bias = torch::empty({2}, away).requires_grad_()};
  EXPECT_THAT(thrown_by([&] {
                KFAC({spec}, {spec.weight, spec.bias}, empirical());
              }),
              HasSubstr("layer \"own\": its bias lies on meta"));
}

struct Zoo : torch::nn::Module {
  Zoo() {
    using namespace torch::nn;
    register_module("conv", Conv2d(Conv2dOptions(4, 6, {3, 2}).groups(2)));
    register_module("norm", BatchNorm2d(6));
    register_module("words", Embedding(EmbeddingOptions(9, 4).sparse(true)));
    register_module("other", Conv1d(Conv1dOptions(2, 2, 3)));
    register_module("gru", GRU(3, 4));
    for (at::Tensor& p : register_module("frozen", Linear(2, 2))->parameters())
      p.set_requires_grad(false);
    register_module("wide", Linear(3, 400));
  }
};

TEST(Registration, NamesWhatItTakesAndWhyNot) {
  Zoo model;
  KfacOptions options = empirical();
  options.largest_factor = 300;
  KFAC pre(model, options);
  EXPECT_THAT(reasons(pre),
              ElementsAre("", "", "its gradients are sparse", "", HasSubstr("no factors are known"),
                          "its weight is frozen", HasSubstr("400 x 400")));
  const RegisteredLayer& conv = pre.registration_report()[0];
  EXPECT_EQ(conv.a, 2 * 3 * 2 + 1);
  EXPECT_EQ(conv.g, 3);
  EXPECT_EQ(conv.groups, 2);
  options.skip = {"conv", "w*", "?[st]her", "gru", "frozen"};
  options.all_layers = true;
  EXPECT_EQ(KfacInside::preconditioner(KFAC(model, options)).blocks().size(), 1u);  // norm
  options.skip.pop_back();
  EXPECT_THAT(thrown_by([&] { KFAC(model, options); }), HasSubstr("\"frozen\""));
}

TEST(Passes, WithoutGradientsOrInEvalModeDoNotCount) {
  torch::nn::Linear layer = weighted(4, 2, 320);
  KFAC pre(*layer, empirical());
  {
    const torch::NoGradGuard no_grad;
    layer(noise({3, 4}, 321));
  }
  layer->eval();
  layer(noise({3, 4}, 321)).sum().backward();
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    EXPECT_FALSE(KfacInside::preconditioner(pre).blocks()[0]->has_batch(side));
  EXPECT_THAT(pre.step().plain, ElementsAre("(model)"));  // its gradient stays
}

TEST(Passes, BetweenFactorUpdatesDoNotCount) {
  torch::nn::Linear layer = weighted(4, 2, 322);
  KfacOptions options = empirical();
  options.factor_interval = options.inverse_interval = 3;
  KFAC pre(*layer, options);
  for (int step = 0; step < 7; ++step) {
    layer->zero_grad();
    layer(noise({3, 4}, 323)).sum().backward();
    EXPECT_EQ(KfacInside::preconditioner(pre).blocks()[0]->has_batch(FactorSide::a), step % 3 == 0);
    const KfacStep done = pre.step();
    EXPECT_EQ(done.factors, step % 3 == 0);
    EXPECT_THAT(done.plain, IsEmpty());
  }
  EXPECT_EQ(pre.save().layers[0].a.updates, 3);
}

TEST(Passes, OfAnUnusedOrFrozenLayerLeaveItsFactors) {
  LinearPair model = tanh_pair();
  KFAC pre(model, empirical());
  model.first(noise({3, 4}, 324)).sum().backward();
  EXPECT_THAT(pre.step().plain, IsEmpty());
  EXPECT_FALSE(model.second->weight.grad().defined());
  for (at::Tensor& p : model.first->parameters()) p.set_requires_grad(false);
  model.zero_grad();
  model.forward(noise({3, 4}, 324)).sum().backward();
  pre.step();
  const KfacState state = pre.save();
  EXPECT_EQ(state.layers[0].a.updates, 1);
  EXPECT_EQ(state.layers[1].a.updates, 1);
}

/// Forgets what is inside and computes it once more in the backward pass.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  using Inside = std::function<at::Tensor(const at::Tensor&)>;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Inside* inside) {
    context->save_for_backward({x});
    context->saved_data["inside"] = reinterpret_cast<std::int64_t>(inside);
    return (*inside)(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* inside = reinterpret_cast<const Inside*>(context->saved_data["inside"].toInt());
    const torch::AutoGradMode with_gradients(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    (*inside)(x).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

TEST(Passes, OfACheckpointedLayerCountOnce) {
  using torch::nn::Linear;
  Linear first(4, 5), second(5, 2);
  const Checkpoint::Inside inside = [&](const at::Tensor& y) { return torch::tanh(first(y)); };
  Pair plain(first, second, [](const at::Tensor& y) { return torch::tanh(y); });
  const at::Tensor x = noise({3, 4}, 330);
  const at::Tensor expected = all_factors(plain, x);
  KFAC pre(plain, empirical());
  (second(Checkpoint::apply(x.clone().requires_grad_(), &inside)).square().sum() / 3).backward();
  EXPECT_LE(error_of(factors_in(pre), expected), 1e-14);
}

/// Passes of a step, and what is warned of over two such steps.
struct PassCase {
  const char* what;
  int said;  // 0: nothing
  std::function<void(LinearPair&)> passes;
  std::vector<std::string> warned = {};  // parts of the one warning
  LossAverage::Over average = Over::batch;
};

TEST(Passes, ThatAreNotAsManyAsSaidAreWarnedOfOnce) {
  using Net = LinearPair;
  const at::Tensor x = noise({4, 4}, 335);
  const auto backward = [&](Net& net, double by = 1) {
    (net.forward(x).square().sum() / by).backward();
  };
  const auto some = [&](int n) {
    return [=](Net& net) {
      for (int i = 0; i < n; ++i) backward(net, n);
    };
  };
  const Checkpoint::Inside inside = [](const at::Tensor& y) { return torch::tanh(y * y); };
  const std::vector<PassCase> cases = {
      {"one", 0, some(1)},
      {"as many as said", 4, some(4)},
      {"more, nothing said", 0, some(4), {"4 backward passes", "expected 1", "give accumulate=4"}},
      {"fewer", 4, some(3), {"3 backward passes", "accumulate=4"}},
      {"more", 2, some(3), {"3 backward passes", "accumulate=2"}},
      {"undivided sums", 0, some(4), {}, Over::sum},
      {"a recurrent layer", 0,
       [&](Net& net) {
         at::Tensor h = x;
         for (int t = 0; t < 3; ++t) h = torch::tanh(net.first(h)).narrow(1, 0, 4);
         net.second(net.first(h)).square().sum().backward();
       }},
      {"layers unused in some passes", 2,
       [&](Net& net) {
         (net.first(x).square().sum() / 2).backward();
         backward(net, 2);
       }},
      {"evaluation in between", 2,
       [&](Net& net) {
         backward(net, 2);
         {
           const torch::NoGradGuard no_grad;
           net.forward(x);
         }
         net.eval();
         net.forward(x);
         net.train();
         backward(net, 2);
       }},
      {"a penalty on the input's gradient", 0,
       [&](Net& net) {
         const at::Tensor free = x.clone().requires_grad_();
         const at::Tensor y = net.forward(free).square().sum();
         const at::Tensor slope =
             torch::autograd::grad({y}, {free}, {}, true, /*create_graph=*/true)[0];
         (y + slope.square().sum()).backward();
       }},
      {"gradients taken by autograd::grad()", 0,
       [&](Net& net) {
         const auto gradients =
             torch::autograd::grad({net.forward(x).square().sum()}, net.parameters());
         for (std::size_t p = 0; p < gradients.size(); ++p)
           net.parameters()[p].mutable_grad() = gradients[p];
       }},
      {"a tied layer in two checkpoints of one pass", 0, [&](Net& net) {
         const Checkpoint::Inside first = [&](const at::Tensor& y) {
           return torch::tanh(net.first(y)).narrow(1, 0, 4);
         };
         const at::Tensor h = Checkpoint::apply(x.clone().requires_grad_(), &first);
         net.second(net.first(Checkpoint::apply(h, &first))).square().sum().backward();
       }}};
  for (const PassCase& c : cases) {
    LinearPair model = tanh_pair();
    KfacOptions options = plain_options(c.average, Fisher::empirical);
    options.factor_interval = options.inverse_interval = 1;
    if (c.said) options.accumulate = c.said;
    KFAC pre(model, options);
    const Warnings said;
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      c.passes(model);
      pre.step();
    }
    const auto all = said.with("");
    EXPECT_EQ(all.size(), c.warned.empty() ? 0u : 1u)
        << c.what << ": " << testing::PrintToString(all);
    for (const std::string& part : c.warned)
      EXPECT_THAT(all, ElementsAre(HasSubstr(part))) << c.what;
  }
}

// One query and one sample: G x A of the output projection is exact.
TEST(Passes, SeeAnAttentionsOutputProjection) {
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(4, 2));
  set_weights(*attention, 331);
  KFAC pre(*attention, empirical());
  const auto out =
      std::get<0>(attention(noise({1, 1, 4}, 332), noise({3, 1, 4}, 333), noise({3, 1, 4}, 334)));
  const at::Tensor loss = out.square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor ours = batch_curvature(pre, 0)[0];
  const at::Tensor g =
      joint_gradient(loss, attention->out_proj->weight, attention->out_proj->bias).flatten();
  EXPECT_LE(error_of(ours, torch::outer(g, g)), 1e-10);
  EXPECT_EQ(pre.registration_report().size(), 2u);  // in_proj_weight is the attention's own
}

TEST(Passes, ThatUseTheWeightOtherwiseOrHideItAreRefusedAndOthersCount) {
  using Use = std::function<void(torch::nn::Linear&, const at::Tensor&)>;
  for (const auto& [said, use] : std::vector<std::pair<std::string, Use>>{
           // a tied decoder
           {"skip the layer",
            [](auto&layer, auto&x) { layer(x).matmul(layer->weight).sum().backward(); }},
           {"no operator was seen",
            [](auto&layer,
               auto&x) { torch::addmm(layer->bias, x, (layer->weight * 2).t()).sum().backward(); }},
           // another loss reads the weight
           {"",
            [](auto&layer, auto&x) { (layer(x).sum() + layer->weight.square().sum()).backward(); }},
           {"", [](auto&layer, auto&x) {
              layer(x).square().sum().backward({}, true, /*create_graph=*/true);
            }}}) {
    torch::nn::Linear layer = weighted(3, 3, 340);
    KFAC pre(*layer, empirical());
    use(layer, noise({2, 3}, 341));
    const std::string thrown = thrown_by([&] { EXPECT_THAT(pre.step().plain, IsEmpty()); });
    EXPECT_THAT(thrown, HasSubstr(said));
    EXPECT_EQ(thrown.empty(), said.empty());
  }
}

/// The program catches what the second layer throws, and goes on with other batches of another
/// size.
template <typename First, typename Second>
void expect_thrown_passes_leave_nothing(First first, Second second,
                                        std::function<at::Tensor(const at::Tensor&)> spoil,
                                        const at::Tensor& x) {
  bool spoils = false;
  Pair model(first, second,
             [&](const at::Tensor& y) { return spoils ? spoil(y) : torch::tanh(y); });
  const at::Tensor expected = all_factors(model, x);
  for (const bool targets_are_unknown : {true, false}) {
    model.zero_grad();
    KFAC pre(model, empirical());
    if (!targets_are_unknown) model.forward(x).square().sum().backward(), model.zero_grad();
    spoils = true;
    EXPECT_ANY_THROW(model.forward(torch::cat({x, x})));
    spoils = false;
    (model.forward(x).square().sum() / x.size(0)).backward();
    EXPECT_LE(error_of(factors_in(pre), expected), 1e-14);
    EXPECT_NO_THROW(pre.step());
  }
}

TEST(Passes, ThatThrowInALayerLeaveNothing) {
  using namespace torch::nn;
  const auto narrow = [](const at::Tensor& y) { return y.narrow(1, 0, 1); };
  expect_thrown_passes_leave_nothing(Linear(4, 5), Linear(5, 2), narrow, noise({3, 4}, 305));
  expect_thrown_passes_leave_nothing(Conv2d(Conv2dOptions(2, 3, 3)), Conv2d(Conv2dOptions(3, 2, 2)),
                                     narrow, noise({3, 2, 6, 5}, 306));
  expect_thrown_passes_leave_nothing(Conv2d(Conv2dOptions(2, 3, 3)), BatchNorm2d(3), narrow,
                                     noise({3, 2, 6, 5}, 307));
  expect_thrown_passes_leave_nothing(Linear(4, 5), LayerNorm(LayerNormOptions({5})), narrow,
                                     noise({3, 4}, 308));
  const auto flat = [](const at::Tensor& y) { return y.to(at::kFloat); };  // of another type
  expect_thrown_passes_leave_nothing(Linear(4, 5), Linear(5, 2), flat, noise({3, 4}, 309));
}

TEST(Passes, UnsampledAreRefused) {
  torch::nn::Linear layer(3, 2);
  KFAC pre(*layer, plain_options(Over::batch, Fisher::monte_carlo));
  layer(torch::rand({2, 3})).sum().backward();
  EXPECT_THAT(thrown_by([&] { pre.step(); }), HasSubstr("sample_fisher"));
}

TEST(Passes, OnThreadsDoNotMix) {
  const auto run = [](std::uint64_t seed, at::Tensor& result) {
    LinearPair model = tanh_pair();
    for (int i = 0; i < 50; ++i) result = all_factors(model, noise({3, 4}, seed));
  };
  std::array<at::Tensor, 2> together, alone;
  {
    std::jthread a([&] { run(350, together[0]); }), b([&] { run(351, together[1]); });
  }
  run(350, alone[0]);
  run(351, alone[1]);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(together[i], alone[i]));
}

// 13. Checkpoints.
struct TrainedPair {
  explicit TrainedPair(KfacOptions options)
      : model(tanh_pair(6, 3)), pre(model, std::move(options)) {}
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      model.zero_grad();
      const at::Tensor x = noise({8, 4}, 400 + static_cast<std::uint64_t>(step));
      (model.forward(x) - x.narrow(1, 0, 3).sin()).square().sum().div(8).backward();
      pre.step();
      const torch::NoGradGuard no_grad;
      for (at::Tensor& p : model.parameters()) p.sub_(p.grad(), 0.1);
    }
  }
  at::Tensor weights() {
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : model.parameters()) all.push_back(p.detach().flatten());
    return torch::cat(all);
  }
  LinearPair model;
  KFAC pre;
};

KfacOptions every_few_steps(InverseMethod method) {
  KfacOptions options = empirical();
  options.method = method;
  options.factor_interval = 2;
  options.inverse_interval = 6;
  options.damping = [](std::int64_t step) { return 0.1 / (1 + static_cast<double>(step)); };
  return options;
}

TEST(State, ResumesBetweenUpdatesAsIfNothingHadHappened) {
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen})
    for (const int stop : {6, 7, 9, 11}) {  // behind an inverse, a factor, between them
      TrainedPair whole(every_few_steps(method)), first(every_few_steps(method));
      whole.train(0, 20);
      first.train(0, stop);
      TrainedPair second(every_few_steps(method));
      {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < 4; ++i)
          second.model.parameters()[i].copy_(first.model.parameters()[i]);
      }
      second.pre.load(first.pre.save());
      second.train(stop, 20);
      EXPECT_LE(error_of(second.weights(), whole.weights()), 1e-12) << stop;
    }
}

TEST(State, OfAnotherModelIsRefused) {
  TrainedPair run(empirical());
  run.train(0, 1);
  torch::nn::Linear other(3, 3);
  KFAC pre(*other, empirical());
  EXPECT_THROW(pre.load(run.pre.save()), InputError);
  KfacState renamed = run.pre.save();
  renamed.layers[1].name = "third";
  EXPECT_THROW(run.pre.load(renamed), InputError);
  KfacState resized = run.pre.save();
  resized.layers[0].a.average = torch::zeros({3}, at::kDouble);
  EXPECT_THROW(run.pre.load(resized), InputError);
}

TEST(Memory, IsThatOfFactorsAndInverses) {
  TrainedPair run(empirical());
  EXPECT_EQ(run.pre.memory_usage().factors, 0);
  run.train(0, 1);
  const KfacMemory memory = run.pre.memory_usage();
  EXPECT_EQ(memory.statistics, 0);
  EXPECT_EQ(memory.factors, 8 * (15 + 21 + 28 + 6));  // triangles of 5, 6, 7, 3
  EXPECT_EQ(memory.inverses, 8 * (25 + 36 + 49 + 9));
}

}  // namespace
}  // namespace linerate::torch_adapter
