// A RecordFunction callback finds operators that read a layer's weight (WeightTable). before() runs
// ahead of the operator's kernel: it reads off how the operator uses the weight and adds or holds
// the input. after() hooks the output. arrived() runs in that hook and adds the gradient.
//
// The number M of loss terms decides the units. G is made of gradients of single terms, and a mean
// over M terms has divided those by M. So arrived() multiplies by M.
#include "linerate/kfac/collector.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "linerate/kfac/counted_positions.hpp"
#include "linerate/kfac/operator_input.hpp"
#include "linerate/kfac/weight_table.hpp"

namespace linerate::torch_adapter {
namespace {

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

/// One operator's use of a layer; lives as long as the graph that may bring its gradient.
struct Use {
  std::size_t layer = 0;
  std::int64_t step = 0;
  std::int64_t within = -1;  // the backward pass that computes the layer once more
  bool waits = false;        // its input, for the targets
  LayerInput input{};
  std::exception_ptr failure{};  // of the computing here: an error unless the operator throws, too
};

/// The samples of a batch: dimension 0 of an operator's input, or 1 for a single sample without
/// that dimension.
std::int64_t samples_of(const LayerInput& input, LayerKind kind) {
  std::int64_t of_a_sample = 0;
  if (kind == LayerKind::linear) of_a_sample = 1;
  if (kind == LayerKind::conv) of_a_sample = 3;
  if (input.is_layer_norm) of_a_sample = input.normalized_dims;
  return input.tensor.dim() > of_a_sample ? input.tensor.size(0) / input.images : 1;
}

bool in_backward() { return torch::autograd::get_current_graph_task_id() >= 0; }

/// Whether the running backward pass computes this weight's gradient. A pass of
/// torch::autograd::grad() for other tensors, such as a penalty on an input's gradient, does not.
bool reaches(const at::Tensor& weight) {
  const auto* const only = torch::autograd::get_current_graph_task_exec_info();
  if (!only || only->empty()) return true;
  const auto found = only->find(torch::autograd::impl::grad_accumulator(weight).get());
  return found != only->end() && found->second.should_execute();
}

}  // namespace

struct Collector::State : std::enable_shared_from_this<Collector::State> {
  State(const Blocks& all, const Settings& chosen)
      : blocks(all), settings(chosen), layers(all.size()) {}

  /// The state under its lock, until the end of the expression.
  struct Locked {
    State& state;
    std::lock_guard<std::mutex> lock{state.mutex};
    State* operator->() const { return &state; }
  };
  Locked locked() { return {*this}; }

  /// An operator's input whose A waits. Autograd keeps this memory, too, so nothing is copied;
  /// `version` tells whether it was changed in place since.
  struct HeldInput {
    std::size_t layer = 0;
    LayerInput input;
    std::uint32_t version = 0;
  };

  /// A pass is a backward(), or all columns of backward_from(). Its loss terms count once a layer.
  struct Watched {
    std::optional<std::int64_t> last_pass = {};
    // Of backward() alone, since begin().
    std::int64_t last_backward = -1;
    int backward_passes = 0;
    double terms = 0;  // of the current batch (of all, if losses are sums)
    bool ever_seen = false;
  };

  void begin_batch() {
    if (batch_is_over && !shows_targets) shows_targets = false;
    if (settings.average.over != LossAverage::Over::sum) forget_terms();
    samples.reset();
    stated_terms.reset();
    counted = {};
    counted_before = targets_came = added_whole = false;
    batch_is_over = pass_threw = false;
  }

  void forget_terms() {
    for (Watched& layer : layers) layer.terms = 0;
    batch_terms = 0;
  }

  bool any_gradient() const {
    return std::any_of(blocks.begin(), blocks.end(),
                       [](const auto& block) { return block->layer().weight.grad().defined(); });
  }

  /// Looks at the end of a backward pass whether it has left gradients. A pass of
  /// torch::autograd::grad leaves none in .grad.
  void note_pass(std::int64_t pass) {
    if (std::exchange(noted_pass, pass) == pass) return;
    torch::autograd::Engine::get_default_engine().queue_callback([state = weak_from_this()] {
      const auto alive = state.lock();
      if (!alive) return;
      const std::lock_guard lock(alive->mutex);
      alive->left_gradients = alive->left_gradients || alive->any_gradient();
    });
  }

  void discard_batches() {
    for (const auto& block : blocks) block->discard_batch();
    forget_passes();
    held.clear();
    outputs.clear();
    left_gradients = false;
  }

  void forget_passes() {
    for (Watched& layer : layers) layer = {.ever_seen = layer.ever_seen};
    most_passes = 0;
    batch_terms = 0;
  }

  /// A layer's operator threw, the program caught it, and begins another pass. The pass that threw
  /// is dropped, and with it all batches that have left no gradients.
  void drop_pass_that_threw() {
    if (most_passes == 0 || !any_gradient()) discard_batches();
    held.clear();
    begin_batch();
  }

  /// Decides whether a layer's use belongs to another batch. A forward pass after a backward pass
  /// does, and so does a forward pass after one that threw.
  void note_batch(const LayerInput& input, LayerKind kind) {
    if (pass_threw) {
      drop_pass_that_threw();
    } else if (batch_is_over) {
      if (left_gradients && !any_gradient()) discard_batches();
      begin_batch();
    }
    if (!samples) samples = samples_of(input, kind);
  }

  /// A forward pass whose targets are still to come.
  bool waits_for_targets() const {
    return shows_targets.value_or(true) && !counted_before && !in_backward();
  }

  void add(const HeldInput& one) {
    CurvatureBlock& block = *blocks[one.layer];
    if (version_of(one.input.tensor) != one.version)
      throw UsageError(fmt::format(
          "K-FAC: layer \"{}\": its input was changed in place between its forward pass "
          "and loss_of(); change a copy",
          block.layer().name));
    block.add_input(counted.of(one.input, block.layer().kind));
  }

  /// Adds the inputs that waited, without the positions that do not count.
  void add_held(bool tells) {
    std::vector<HeldInput> all;
    {
      const std::lock_guard lock(mutex);
      all.swap(held);
      added_whole = added_whole || !(all.empty() || counted.given() || targets_came);
      targets_came = false;
    }
    const at::DisableRecordFunctionGuard quiet;
    const c10::NoGradGuard no_grad;
    for (const HeldInput& one : all) {
      const std::int64_t start = now();
      {
        const std::lock_guard lock(mutex);
        if (!active || error) return;
        try {
          add(one);
        } catch (const UsageError&) {
          error = std::current_exception();
        }
      }
      if (tells) tell(one.layer, FactorSide::a, start);
    }
  }

  std::shared_ptr<Use> before(const at::RecordFunction& fn, std::size_t layer) {
    const at::DisableRecordFunctionGuard quiet;  // what is computed here does not count as use
    const c10::NoGradGuard no_grad;
    const std::lock_guard lock(mutex);
    CurvatureBlock& block = *blocks[layer];
    if (!active || paused || error || !block.layer().weight.requires_grad()) return nullptr;
    if (block.layer().trains && !block.layer().trains()) return nullptr;
    try {
      std::optional<LayerInput> input = operator_input(fn, block.layer());
      if (!input) return nullptr;
      input->draw = random_key(random_key(settings.seed, static_cast<std::uint64_t>(step)), layer);
      if (!in_backward()) note_batch(*input, block.layer().kind);  // else it is computed once more
      HeldInput one{layer, *input, version_of(input->tensor)};
      one.input.tensor = input->tensor.detach();
      // Norm layers wait, too, because uses are told of in their order.
      const bool waits = waits_for_targets();
      if (waits)
        held.push_back(std::move(one));
      else
        add(one), added_whole = added_whole || !(counted.given() || in_backward());
      layers[layer].ever_seen = true;
      input->tensor = block.keeps_input() ? input->tensor.detach() : at::Tensor();
      return std::make_shared<Use>(
          Use{layer, step, torch::autograd::get_current_graph_task_id(), waits, std::move(*input)});
    } catch (const UsageError&) {
      // A backward pass that builds a graph multiplies with weights in its own ways, so this use
      // does not count.
      if (in_backward()) return nullptr;
      return std::make_shared<Use>(Use{.layer = layer, .failure = std::current_exception()});
    } catch (...) {  // a callback's exceptions are lost
      return std::make_shared<Use>(Use{.layer = layer, .failure = std::current_exception()});
    }
  }

  void after(const std::shared_ptr<Use>& use, const at::RecordFunction& fn) {
    if (fn.outputs().empty()) {  // the operator has thrown
      const std::lock_guard lock(mutex);
      pass_threw = !in_backward();
      return;
    }
    if (use->failure) {
      const std::lock_guard lock(mutex);
      if (!error) error = use->failure;
      return;
    }
    if (!fn.outputs().front().isTensor()) return;
    const at::Tensor& output = fn.outputs().front().toTensor();
    if (!output.requires_grad()) return;
    output.register_hook([state = weak_from_this(), use](const at::TensorBase& gradient) {
      const auto alive = state.lock();
      if (alive) alive->add_held(/*tells=*/true);
      const std::int64_t start = alive ? alive->now() : 0;
      if (alive && alive->arrived(*use, at::Tensor(gradient)))
        alive->tell(use->layer, FactorSide::g, start);
    });
    if (settings.fisher == Fisher::empirical) return;
    const std::lock_guard lock(mutex);
    outputs.push_back(torch::autograd::impl::gradient_edge(output));
  }

  double terms() const {
    if (stated_terms) return *stated_terms;
    if (settings.average.over == LossAverage::Over::terms) return settings.average.terms;
    const bool by_batch = settings.average.over == LossAverage::Over::batch;
    const bool by_position = settings.average.over == LossAverage::Over::batch_positions;
    if (counted.given() && (by_position || (by_batch && counted.by_sample())))
      return counted.labels();
    if (by_batch && samples) return static_cast<double>(*samples);
    throw UsageError(
        "K-FAC: the loss is averaged over the positions of the network's output, and that output "
        "is not known; call loss_of(output) between the forward and the backward pass");
  }

  std::int64_t now() {
    std::function<std::int64_t()> clock;
    {
      const std::lock_guard lock(mutex);
      if (active && !paused) clock = listener.clock;
    }
    return clock ? clock() : 0;  // 0: nobody will be told
  }

  void tell(std::size_t layer, FactorSide side, std::int64_t start) {
    const Span took{start, now()};
    const Listener listens = locked()->listener;
    if (!listens.told) return;
    const at::DisableRecordFunctionGuard quiet;
    const c10::NoGradGuard no_grad;
    try {
      listens.told(layer, side, took);
    } catch (...) {  // a callback's exceptions are lost
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  /// Counts the loss terms of a pass. Each layer that the pass reaches gets the pass's terms once.
  /// The batch has as many terms as the layer that most of its passes reach. A pass inside of
  /// another (a checkpoint's) is the same pass.
  ///
  /// An example with terms 8 a pass. Two micro-batches run; layer 1 is in both and layer 2 only in
  /// the second. Layer 1 has 16 terms and layer 2 has 8, and the step has 16. G of layer 2 is then
  /// divided by 16, because the first batch's gradient of layer 2 is zero.
  void count_terms(const Use& use, std::int64_t pass, double m) {
    CurvatureBlock& block = *blocks[use.layer];
    const bool sum = settings.average.over == LossAverage::Over::sum;
    // The curvature of a sum of losses is the sum of theirs: one term in all.
    Watched& layer = layers[use.layer];
    const bool counts = sum ? !block.has_batch(FactorSide::g) : layer.last_pass != pass;
    layer.last_pass = pass;
    if (!counts) return;
    block.count_terms(m);
    const double more = (layer.terms += m) - batch_terms;
    if (more <= 0) return;
    batch_terms += more;
    for (const auto& each : blocks) each->count_step_terms(more);
  }

  /// Counts backward passes by layer. A layer that is used several times in a pass counts once. A
  /// checkpoint's own pass inside of a pass is no further pass.
  void count_pass(const Use& use, std::int64_t pass) {
    if (!reaches(blocks[use.layer]->layer().weight)) return;
    Watched& layer = layers[use.layer];
    if (std::exchange(layer.last_backward, pass) != pass)
      most_passes = std::max(most_passes, ++layer.backward_passes);
  }

  /// A gradient of an operator's output has come. Adds it to G and returns true, unless G is
  /// sampled: then only the pass is counted here, and backward_from() brings G's gradients.
  bool arrived(const Use& use, const at::Tensor& gradient) {
    const std::lock_guard lock(mutex);
    if (!active || paused || use.step != step || !gradient.defined()) return false;
    const std::int64_t task = torch::autograd::get_current_graph_task_id();
    const std::int64_t pass = sampling ? -1 - samplings : use.within >= 0 ? use.within : task;
    if (!sampling) {
      count_pass(use, pass);
      if (settings.fisher != Fisher::empirical) {
        batch_is_over = true;
        note_pass(task);
        return false;
      }
    }
    const at::DisableRecordFunctionGuard quiet;
    const c10::NoGradGuard no_grad;
    CurvatureBlock& block = *blocks[use.layer];
    const bool sum = settings.average.over == LossAverage::Over::sum;
    const double m = sum ? 1 : terms();
    count_terms(use, pass, m);
    block.add_gradient(use.input, gradient, sampling ? 1 : m / loss_scale());
    if (!sampling) {
      batch_is_over = true;
      note_pass(task);
    }
    return true;
  }

  const Blocks& blocks;
  const Settings settings;
  std::mutex mutex;
  bool active = false, paused = false, sampling = false;
  std::int64_t step = 0;
  std::function<double()> loss_scale;
  std::exception_ptr error;
  Listener listener;
  // Of the current batch, which ends with its backward pass.
  std::optional<std::int64_t> samples;
  std::optional<double> stated_terms;
  CountedPositions counted;
  std::vector<HeldInput> held;
  bool counted_before = false;  // the forward pass, by count_only()
  bool targets_came = false;    // those of `held`
  bool added_whole = false;     // rows of A, without a look at targets
  bool batch_is_over = false;
  bool pass_threw = false;      // in a layer's operator
  bool left_gradients = false;  // a backward pass of this step, in .grad
  std::int64_t noted_pass = -1;
  std::int64_t samplings = 0;
  std::vector<Watched> layers;
  // Of the layer with most.
  int most_passes = 0;
  double batch_terms = 0;
  std::optional<bool> shows_targets;   // whether losses come with them; absent: not known yet
  torch::autograd::edge_list outputs;  // of layers, for backward_from()
};

namespace {

struct ObservedWeight {
  std::shared_ptr<Collector::State> state;
  std::size_t layer = 0;
};
struct UseContext : at::ObserverContext {
  std::shared_ptr<Collector::State> state;
  std::shared_ptr<Use> use;
};

/// An operator's parts (at::linear's addmm) do not count as uses.
thread_local bool inside_use = false;

std::unique_ptr<at::ObserverContext> before_use(const at::RecordFunction& fn);
void after_use(const at::RecordFunction& fn, at::ObserverContext* context);

WeightTable<ObservedWeight>& observed_weights() {
  static auto* const whole = new WeightTable<ObservedWeight>(  // outlives statics that hold models
      at::RecordFunctionCallback(before_use, after_use)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  return *whole;
}

std::unique_ptr<at::ObserverContext> before_use(const at::RecordFunction& fn) {
  if (inside_use || !c10::GradMode::is_enabled()) return nullptr;
  for (const ObservedWeight& watched : observed_weights().read_by(fn)) {
    const std::int64_t start = watched.state->now();
    auto use = watched.state->before(fn, watched.layer);
    if (!use) continue;
    if (!use->waits && !use->failure) watched.state->tell(watched.layer, FactorSide::a, start);
    auto context = std::make_unique<UseContext>();
    context->state = watched.state;
    context->use = std::move(use);
    inside_use = true;
    return context;
  }
  return nullptr;
}

void after_use(const at::RecordFunction& fn, at::ObserverContext* context) {
  if (!context) return;
  inside_use = false;
  const auto& use = static_cast<const UseContext&>(*context);
  use.state->after(use.use, fn);
}

}  // namespace

Collector::Collector(const Blocks& blocks, const Settings& settings)
    : state_(std::make_shared<State>(blocks, settings)) {}

Collector::~Collector() { end(); }

void Collector::begin(std::int64_t step, std::function<double()> loss_scale) {
  end();
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.step = step;
  s.loss_scale = std::move(loss_scale);
  s.active = true;
  s.error = nullptr;
  s.left_gradients = false;
  s.forget_passes();
  for (std::size_t i = 0; i < s.blocks.size(); ++i)
    observed_weights().add(s.blocks[i]->layer().weight, {state_, i});
}

void Collector::end() {
  observed_weights().remove([this](const ObservedWeight& w) { return w.state == state_; });
  const std::lock_guard lock(state_->mutex);
  state_->active = false;
  state_->held.clear();
  state_->outputs.clear();
  state_->begin_batch();
}

void Collector::set_listener(Listener listener) {
  state_->locked()->listener = std::move(listener);
}
int Collector::passes() const { return state_->locked()->most_passes; }
void Collector::set_terms(double terms) { state_->locked()->stated_terms = terms; }
CountedPositions Collector::counted() const { return state_->locked()->counted; }
void Collector::pause(bool yes) { state_->locked()->paused = yes; }

void Collector::loss_of(const at::Tensor& output) {
  state_->add_held(/*tells=*/true);
  set_terms(loss_terms(state_->settings.average, output, counted()));
}

void Collector::note_targets(const CountedPositions& counted) {
  const std::lock_guard lock(state_->mutex);
  state_->shows_targets = state_->targets_came = true;
  if (!counted.given()) {
    if (!state_->counted_before) state_->counted = {};
    return;
  }
  if (state_->active && state_->batch_is_over)
    throw UsageError(
        "K-FAC: loss_of(): the targets with positions that do not count came after the backward "
        "pass; call it between the forward and the backward pass");
  if (state_->active && state_->added_whole)
    throw UsageError(
        "K-FAC: loss_of(): these targets have positions that do not count, but all positions of "
        "their batch were added already. Give loss_of() the targets of every batch from the first "
        "on, before sample_fisher(), or call count_only() before the forward pass");
  state_->counted = counted;
}

void Collector::count_only(const at::Tensor& counted) {
  CountedPositions given(counted);
  const std::lock_guard lock(state_->mutex);
  if (state_->pass_threw)
    state_->drop_pass_that_threw();
  else if (state_->batch_is_over)
    state_->begin_batch();
  state_->counted = std::move(given);
  state_->counted_before = true;
}

void Collector::backward_from(const at::Tensor& output, const std::vector<at::Tensor>& columns) {
  State& s = *state_;
  if (!s.active) return;
  loss_of(output);
  torch::autograd::edge_list layers;
  {
    const std::lock_guard lock(s.mutex);
    if (s.error) std::rethrow_exception(s.error);
    layers.swap(s.outputs);
    s.sampling = true;
    ++s.samplings;
  }
  const auto ends = c10::make_scope_exit([&s] { s.locked()->sampling = false; });
  if (layers.empty()) return;
  const CountedPositions counted = this->counted();
  for (const at::Tensor& column : columns)
    torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::impl::gradient_edge(output)}, {counted.masked(column)},
        /*keep_graph=*/true,
        /*create_graph=*/false, /*accumulate_grad=*/false, layers);
}

void Collector::check() const {
  State& s = *state_;
  s.add_held(/*tells=*/false);  // who asks may be who listens
  const std::lock_guard lock(s.mutex);
  if (s.error) std::rethrow_exception(s.error);
  std::vector<std::string> unseen, unsampled;
  for (std::size_t i = 0; i < s.blocks.size(); ++i) {
    const CurvatureBlock& block = *s.blocks[i];
    const LayerSpec& layer = block.layer();
    const at::Tensor& gradient = layer.weight.grad();
    if (!gradient.defined() || (layer.trains && !layer.trains())) continue;
    if (!s.layers[i].ever_seen) {
      // On a device a look at it would wait.
      if (gradient.is_cpu() && gradient.any().item<bool>()) unseen.push_back(layer.name);
    } else if (s.settings.fisher != Fisher::empirical && block.has_batch(FactorSide::a) &&
               !block.has_batch(FactorSide::g)) {
      unsampled.push_back(layer.name);
    }
  }
  if (!unseen.empty())
    throw UsageError(
        fmt::format("K-FAC: {} got a gradient, but no operator was seen that uses the weight as "
                    "its layer does; name it in `skip` to leave it to the first-order optimizer "
                    "(weights that were loaded or moved after K-FAC was made are seen from the "
                    "next step on, so make K-FAC after them)",
                    join(unseen, ", ")));
  if (!unsampled.empty())
    throw UsageError(fmt::format(
        "K-FAC: the Fisher information of {} was not sampled; call sample_fisher(output, loss) "
        "between the forward and the backward pass",
        join(unsampled, ", ")));
}

at::Tensor kl_clip_factor(const at::Tensor& q, double learning_rate, double kappa) {
  const at::Tensor finite = at::isfinite(q).to(at::kDouble);
  if (kappa <= 0) return finite;
  const at::Tensor divergence = q.abs().mul(learning_rate * learning_rate);
  // A divergence of 0 gives an infinite root, which is cut off at 1.
  const at::Tensor nu = divergence.reciprocal().mul(kappa).sqrt().clamp_max(1);
  return at::where(finite.gt(0), nu, finite);
}

double rate_of(const torch::optim::Optimizer& optimizer) {
  double rate = 0;
  for (const auto& group : optimizer.param_groups())
    rate = std::max(rate, group.options().get_lr());
  return rate;
}

void bound_momentum(torch::optim::Optimizer& optimizer, const Blocks& blocks, double before,
                    double now) {
  if (!(before > 0 && now > before) || !dynamic_cast<torch::optim::SGD*>(&optimizer)) return;
  const c10::NoGradGuard no_grad;
  for (const auto& block : blocks)
    for (const at::Tensor& parameter : {block->layer().weight, block->layer().bias}) {
      if (!parameter.defined()) continue;
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      auto& state = static_cast<torch::optim::SGDParamState&>(*found->second);
      if (state.momentum_buffer().defined()) state.momentum_buffer().mul_(before / now);
    }
}

}  // namespace linerate::torch_adapter
