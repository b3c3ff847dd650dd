// An operation of a Plan that is a function. Private to torch_adapter.
#pragma once

#include <c10/core/GradMode.h>

#include <functional>
#include <utility>

#include "linerate/exec/operation.hpp"

namespace linerate::torch_adapter {

/// Runs without autograd's recording. A worker's thread has a mode of its own, so the caller's
/// NoGradGuard does not reach it.
class OperationOf : public exec::Operation {
 public:
  using Run = std::function<void(const doc::TaskGraph&, const doc::Task&)>;
  explicit OperationOf(Run run) : run_(std::move(run)) {}
  void run(const doc::TaskGraph& graph, const doc::Task& task) override {
    const c10::NoGradGuard no_grad;
    run_(graph, task);
  }

 private:
  Run run_;
};

}  // namespace linerate::torch_adapter
