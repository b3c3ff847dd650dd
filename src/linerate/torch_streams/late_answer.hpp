// A yes or no that a device computes, for a host that does not wait for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace linerate::torch_streams {

/// Thread safety: one thread.
class LateAnswer {
 public:
  /// `answer`: bool, of no dimensions, computed in the current stream. Enqueues its way to the
  /// host. With an earlier one that nobody has taken it is one answer: yes if either is.
  void ask(const at::Tensor& answer);
  /// Once: the answer, if it has come by now.
  std::optional<bool> take();

 private:
  at::Tensor asked_;  // on the device; undefined: nothing that was not taken
  at::Tensor here_;   // the same on the CPU
  std::optional<c10::Event>
      there_;  // after which it is there, recorded again and again; none: it is
};

}  // namespace linerate::torch_streams
