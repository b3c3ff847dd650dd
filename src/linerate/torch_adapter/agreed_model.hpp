// The tensors of a model that ranks share, and the checks before their first exchange. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/torch_adapter/options.hpp"

namespace torch::nn {
class Module;
}

namespace linerate::torch_adapter {

struct Parameter {
  std::string name;
  at::Tensor tensor;
  DType dtype = DType::f32;
  std::vector<std::int64_t> sizes, strides;  // when it was collected; the tensor may change
};

/// Everything of a model that ranks share, each tensor once, in registration order.
struct ModelState {
  std::vector<Parameter> trained;  // requires_grad
  NamedTensors frozen;
  NamedTensors buffers;
};

/// Names a module whose gradients would be sparse; empty when there is none.
std::string sparse_module(torch::nn::Module& model);

std::vector<at::Tensor> tensors_of(const NamedTensors& named);

// The checks with which ranks agree before a model's gradients may be exchanged. Private to
// torch_adapter.

/// Compares names, types, shapes and options of all ranks, before any gradient is sent. `problem`
/// is what this rank already found wrong; empty: nothing. `who` begins messages and names of
/// collectives.
///
/// Without this, ranks with different layers would fail later, with a message about bytes and not
/// about the layer. Worse, two layers of equal size could be added up. All errors here are thrown
/// on every rank, or on none. Throws CommError or UsageError. Collective.
ModelState agreed_model(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::string& problem, comm::Communicator& communicator,
                        const DataParallelOptions& options, const std::string& who);

// Element types of payloads and files as LibTorch calls them.

/// LibTorch's name of a DType, which has the same size.
c10::ScalarType scalar_type(DType type);
/// Absent for types that no document names: complex, quantised, bool, 8- and 16-bit integers with a
/// sign.
std::optional<DType> dtype_of(c10::ScalarType type);

}  // namespace linerate::torch_adapter
