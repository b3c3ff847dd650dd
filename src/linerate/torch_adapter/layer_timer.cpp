// Forward: a RecordFunction callback sees each operator. An operator that reads a layer's parameter
// begins that layer's span. At the same moment the next autograd sequence number is noted as the
// layer's boundary.
//
// Backward: each backward function carries the sequence number of the operator that made it, and
// the boundaries tell the layer. For example `fc1` begins at number 10 and `fc2` at number 14. A
// backward function with number 15 belongs to `fc2`, and one with number 12, of a ReLU, belongs to
// `fc1`.
#include "linerate/torch_adapter/layer_timer.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <unordered_map>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/gradient_hooks.hpp"

namespace linerate::torch_adapter {
namespace {

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

struct LayerTimer::State {
  /// From this autograd sequence number on, operators belong to `layer`.
  struct Boundary {
    std::uint64_t sequence = 0;
    int layer = -1;
  };

  explicit State(const std::vector<std::pair<std::string, at::Tensor>>& parameters);

  void enter(std::vector<LayerSpan>& spans, int layer) {
    if (!spans.empty() && spans.back().layer == layer) return;
    const std::int64_t now = steady_ns();
    if (!spans.empty()) spans.back().end_ns = now;
    spans.push_back({layer, now, now});
  }
  void forward_operator(const at::RecordFunction& fn) {
    for (const c10::IValue& input : fn.inputs()) {
      if (!input.isTensor()) continue;
      const at::Tensor& tensor = input.toTensor();
      if (!tensor.defined() || !tensor.has_storage()) continue;
      const auto found = by_storage.find(storage_of(tensor));
      if (found == by_storage.end()) continue;
      const int layer = found->second;
      if (step.forward.empty() || step.forward.back().layer != layer)
        boundaries.push_back({at::sequence_number::peek(), layer});
      fired[to_index(layer)] = true;
      enter(step.forward, layer);
      return;
    }
  }

  void backward_function(const at::RecordFunction& fn) {
    // Accumulation of gradients has no sequence number. It belongs to the layer that was computed
    // just before.
    const std::int64_t sequence = fn.seqNr();
    if (sequence < 0 || boundaries.empty()) return;
    const auto after =
        std::upper_bound(boundaries.begin(), boundaries.end(), static_cast<std::uint64_t>(sequence),
                         [](std::uint64_t s, const Boundary& b) { return s < b.sequence; });
    // Work before the first layer (none in most models) counts towards the first.
    enter(step.backward, (after == boundaries.begin() ? after : after - 1)->layer);
  }
  /// From now on `see` looks at the operators of this thread.
  template <void (State::*see)(const at::RecordFunction&)>
  void watch(at::RecordScope scope) {
    current = this;
    const auto callback = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
      if (current) (current->*see)(fn);
      return nullptr;
    };
    watching = at::addThreadLocalCallback(at::RecordFunctionCallback(callback)
                                              .needsInputs(scope == at::RecordScope::FUNCTION)
                                              .scopes({scope}));
  }
  void stop_watching() {
    if (watching != at::INVALID_CALLBACK_HANDLE) at::removeCallback(watching);
    watching = at::INVALID_CALLBACK_HANDLE;
    current = nullptr;
  }

  /// The timer that observes on this thread; callbacks are plain functions.
  static thread_local State* current;

  std::vector<std::string> layers;
  std::vector<int> layer_of_parameter;
  std::unordered_map<const void*, int> by_storage;
  std::vector<bool> fired;
  std::vector<Boundary> boundaries;  // of this step, ascending
  StepSpans step;
  at::CallbackHandle watching = at::INVALID_CALLBACK_HANDLE;
  bool in_backward = false;
  std::unique_ptr<GradientHooks> hooks;
};

thread_local LayerTimer::State* LayerTimer::State::current = nullptr;

LayerTimer::State::State(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    const std::size_t dot = name.rfind('.');
    const std::string path =
        dot == std::string::npos ? std::string("(model)") : name.substr(0, dot);
    auto known = std::ranges::find(layers, path);
    if (known == layers.end()) known = layers.insert(layers.end(), path);
    const int layer = static_cast<int>(known - layers.begin());
    layer_of_parameter.push_back(layer);
    const auto [place, fresh] = by_storage.try_emplace(storage_of(tensor), layer);
    if (!fresh && place->second != layer)
      throw UsageError("layer timer: " + name + " shares its memory with a parameter of " +
                       layers[to_index(place->second)] + "; layers cannot be told apart");
  }
  fired.assign(layers.size(), false);
  step.ready_ns.assign(parameters.size(), -1);
  hooks = std::make_unique<GradientHooks>(tensors_of(parameters), [this](std::size_t i) {
    if (in_backward) step.ready_ns[i] = steady_ns();
  });
}

LayerTimer::LayerTimer(const std::vector<std::pair<std::string, at::Tensor>>& parameters)
    : state_(std::make_unique<State>(parameters)) {}

LayerTimer::~LayerTimer() { cancel(); }

const std::vector<std::string>& LayerTimer::layers() const { return state_->layers; }
const std::vector<int>& LayerTimer::layer_of_parameter() const {
  return state_->layer_of_parameter;
}

void LayerTimer::begin_forward() {
  State& s = *state_;
  LINERATE_CHECK(State::current == nullptr, "another layer timer observes this thread");
  s.boundaries.clear();
  s.step.forward.clear();
  s.step.backward.clear();
  std::ranges::fill(s.step.ready_ns, -1);
  std::fill(s.fired.begin(), s.fired.end(), false);
  s.watch<&State::forward_operator>(at::RecordScope::FUNCTION);
  s.step.forward_start_ns = steady_ns();
}

void LayerTimer::begin_backward() {
  State& s = *state_;
  s.stop_watching();
  std::vector<std::string> silent;
  for (std::size_t i = 0; i < s.layers.size(); ++i)
    if (!s.fired[i]) silent.push_back(s.layers[i]);
  if (!silent.empty())
    throw UsageError("layer timer: no operator of this forward pass read a parameter of " +
                     join(silent, ", ") + "; freeze unused layers or time without them");
  s.watch<&State::backward_function>(at::RecordScope::BACKWARD_FUNCTION);
  s.step.forward_end_ns = s.step.backward_start_ns = steady_ns();
  s.step.forward.front().start_ns = s.step.forward_start_ns;
  s.step.forward.back().end_ns = s.step.forward_end_ns;
  s.in_backward = true;
}

StepSpans LayerTimer::end() {
  State& s = *state_;
  s.step.backward_end_ns = steady_ns();
  s.in_backward = false;
  s.stop_watching();
  if (!s.step.backward.empty()) {
    s.step.backward.front().start_ns = s.step.backward_start_ns;
    s.step.backward.back().end_ns = s.step.backward_end_ns;
  }
  return s.step;
}

void LayerTimer::cancel() {
  state_->in_backward = false;
  state_->stop_watching();
}

}  // namespace linerate::torch_adapter
