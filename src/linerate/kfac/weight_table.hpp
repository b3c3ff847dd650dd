// Finds the operators that read watched weights, and tells whether a weight has changed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::torch_adapter {

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

}  // namespace linerate::torch_adapter
