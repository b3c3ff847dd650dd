// How long each layer of a LibTorch model computes, forward and backward, without touching the
// model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}

namespace linerate::torch_adapter {

/// A stretch of time in which one layer computed, on std::chrono::steady_clock.
struct LayerSpan {
  int layer = -1;                         // index into LayerTimer::layers()
  std::int64_t start_ns = 0, end_ns = 0;  // steady clock
};

/// One step of one rank. Spans are in order of time and touch; a layer that is left and entered
/// again has several.
struct StepSpans {
  std::int64_t forward_start_ns = 0, forward_end_ns = 0;    // of the whole forward pass
  std::int64_t backward_start_ns = 0, backward_end_ns = 0;  // of the whole backward pass
  std::vector<LayerSpan> forward, backward;                 // of layers, in order of time
  std::vector<std::int64_t> ready_ns;  // by parameter: gradient accumulated; -1: none in this step
};

/// A layer is a module with parameters of its own; it is named by its path. C++ modules have no
/// forward hooks, so a RecordFunction callback watches for operators that read a layer's parameter.
/// Parameters are matched by storage, because a Linear shows as aten::t of its weight. A layer's
/// forward lasts from there to the next layer's, operators without parameters included; the first
/// begins with the pass. Backward functions carry the sequence numbers of their forward, which tell
/// their layer. All on the calling thread, where LibTorch runs a backward pass of the CPU. Costs
/// about half a microsecond for each operator. Thread safety: one thread, which also runs the
/// passes; timers of other threads do not disturb it.
class LayerTimer {
 public:
  /// Every parameter of the model with its name ("layer1.0.conv1.weight"), in registration order;
  /// their storages must not be shared. Throws UsageError.
  explicit LayerTimer(const std::vector<std::pair<std::string, at::Tensor>>& parameters);
  ~LayerTimer();
  LayerTimer(const LayerTimer&) = delete;
  LayerTimer& operator=(const LayerTimer&) = delete;

  /// Their paths, in the order of their first parameters.
  const std::vector<std::string>& layers() const;
  /// By parameter.
  const std::vector<int>& layer_of_parameter() const;

  /// Observes from now on: one timer at a time on a thread.
  void begin_forward();
  /// Ends forward, the loss included. Throws UsageError naming the layers that no operator has
  /// read.
  void begin_backward();
  /// Ends the step after its backward pass, and says what it took.
  [[nodiscard]] StepSpans end();
  /// Ends observing after an exception.
  void cancel();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace linerate::torch_adapter
