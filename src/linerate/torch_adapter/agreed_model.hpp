// The tensors of a model that ranks share, and the checks before their first exchange. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
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

/// Why some tensor cannot be exchanged, as a sentence; empty if all can. All of them may lie on a
/// device only if a process group moves device memory.
std::string unsupported(const NamedTensors& parameters, const NamedTensors& buffers,
                        bool exchanges_device_memory);

/// `parameters` and `buffers` must be supported. A tensor that appears twice counts by its first
/// name.
ModelState collect(const NamedTensors& parameters, const NamedTensors& buffers);

/// One line a tensor: everything that must be the same on every rank.
std::vector<std::string> describe(const NamedTensors& parameters, const NamedTensors& buffers);

std::vector<at::Tensor> tensors_of(const NamedTensors& named);
NamedTensors named_parameters(torch::nn::Module& model);
NamedTensors named_buffers(torch::nn::Module& model);

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

// Finds the operators that read watched weights. Private to torch_adapter.

/// Finds the operators that read watched weights. A global RecordFunction callback looks at the
/// inputs of every operator, on any thread, as long as any weight is watched. Weights are found by
/// their storage, so a view (a Linear's transposed weight) is found, too. There is one table for
/// the whole process, because ranks may be its threads and a forward pass may use several.
template <typename Watched>
class WeightTable {
 public:
  explicit WeightTable(at::RecordFunctionCallback callback) : callback_(callback) {}

  void add(const at::Tensor& weight, Watched watched) {
    const std::lock_guard lock(mutex_);
    by_storage_.emplace(weight.storage().unsafeGetStorageImpl(), std::move(watched));
    if (watching_ == at::INVALID_CALLBACK_HANDLE) watching_ = at::addGlobalCallback(callback_);
  }

  template <typename Which>
  void remove(Which&& which) {
    const std::lock_guard lock(mutex_);
    std::erase_if(by_storage_, [&](const auto& entry) { return which(entry.second); });
    // Operators pay for the callback, so it exists only while there is something to look for.
    if (!by_storage_.empty() || watching_ == at::INVALID_CALLBACK_HANDLE) return;
    at::removeCallback(watching_);
    watching_ = at::INVALID_CALLBACK_HANDLE;
  }

  /// What is watched among an operator's inputs, in their order.
  std::vector<Watched> read_by(const at::RecordFunction& fn) const {
    std::vector<Watched> found;
    for (const c10::IValue& input : fn.inputs()) {
      if (input.isTensor()) {
        find(input.toTensor(), found);
      } else if (input.isTensorList()) {  // the weights of an LSTM
        for (const at::Tensor& tensor : input.toTensorVector()) find(tensor, found);
      }
    }
    return found;
  }

 private:
  void find(const at::Tensor& tensor, std::vector<Watched>& found) const {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const std::shared_lock lock(mutex_);
    const auto range = by_storage_.equal_range(tensor.storage().unsafeGetStorageImpl());
    for (auto at = range.first; at != range.second; ++at) found.push_back(at->second);
  }

  at::RecordFunctionCallback callback_;
  mutable std::shared_mutex mutex_;
  std::unordered_multimap<const void*, Watched> by_storage_;
  at::CallbackHandle watching_ = at::INVALID_CALLBACK_HANDLE;
};

// Tells whether an optimizer has changed a weight. Private to torch_adapter.

/// A hash of four elements of a tensor, which is enough to tell that an optimizer has changed it.
/// The tensor's version counter is not, because LibTorch's optimizers write through .data(), which
/// has a counter of its own.
inline std::uint64_t weight_sample(const at::Tensor& tensor) {
  constexpr std::int64_t kElements = 4;
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const auto element = to_index(tensor.element_size());
  std::uint64_t hash = kHashStart;
  for (std::int64_t i = 0; i < kElements && tensor.numel() > 0; ++i) {
    const auto at = to_index((tensor.numel() - 1) * i / (kElements - 1));
    hash = hash_bytes({bytes + at * element, element}, hash);
  }
  return hash;
}

// Element types of payloads and files as LibTorch calls them.

/// LibTorch's name of a DType, which has the same size.
c10::ScalarType scalar_type(DType type);
/// Absent for types that no document names: complex, quantised, bool, 8- and 16-bit integers with a
/// sign.
std::optional<DType> dtype_of(c10::ScalarType type);

// Rank 0's parameters and buffers for every rank, as plain memory.

/// The bytes of some tensors; whoever makes the list keeps the tensors alive.
using MemoryPieces = std::vector<std::span<std::byte>>;

/// Overwrites each piece with rank 0's. Collective.
void broadcast_memory(comm::Communicator& communicator, const MemoryPieces& pieces,
                      const std::string& name);

}  // namespace linerate::torch_adapter
