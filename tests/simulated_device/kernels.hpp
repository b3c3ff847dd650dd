// How an operator runs on a simulated device: its CPU kernel, on the memory that kernels see.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace linerate::simulated {

/// Any operator, boxed: takes its arguments from the stack and leaves its results there.
void run_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Which operators have the host wait on a GPU: what they give has a size that depends on values,
/// or they look at a solver's status.
bool makes_host_wait(const std::string& operator_name);

}  // namespace linerate::simulated
