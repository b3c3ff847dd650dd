// Numbers that a device computes, for a host that does not wait for them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <deque>
#include <optional>

namespace linerate::torch_adapter {

/// Thread safety: one thread.
class LateValues {
 public:
  /// `values`: of any type, computed in the current stream. Enqueues their copy to the host.
  void ask(const at::Tensor& values);
  /// The oldest values that were asked for and not taken, on the CPU, if they have come by now. A
  /// later set that has come earlier waits for its turn.
  std::optional<at::Tensor> take();
  bool is_empty() const { return asked_.empty(); }

 private:
  struct Asked {
    at::Tensor there, here;           // on the device, on the CPU
    std::optional<c10::Event> event;  // after which they are here; none: they are
  };
  std::deque<Asked> asked_;
};

// A yes or no that a device computes, for a host that does not wait for it. The training step asks
// in one step whether all gradients were finite, and takes the answer in a later step.

/// Thread safety: one thread.
class LateAnswer {
 public:
  /// `answer`: a scalar bool tensor, computed in the current stream. Enqueues its copy to the host.
  /// If nobody has taken an earlier answer, the two become one: yes if either is yes.
  void ask(const at::Tensor& answer) { asked_.ask(answer); }
  /// The answer, if all that was asked has come by now; each answer once.
  std::optional<bool> take();

 private:
  LateValues asked_;
  std::optional<bool> come_;
};

}  // namespace linerate::torch_adapter
