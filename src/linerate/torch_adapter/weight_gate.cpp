#include "linerate/torch_adapter/weight_gate.hpp"

#include <ATen/record_function.h>

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace linerate::torch_adapter {
namespace {

using BeforeUse = std::function<void(std::size_t)>;

struct Watched {
  std::shared_ptr<const BeforeUse> before_use;
  std::size_t index = 0;
};

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& fn);

/// Of the whole process: ranks may be threads of it, and a forward pass may run on several.
class Table {
 public:
  void add(const void* storage, Watched watched) {
    const std::lock_guard lock(mutex_);
    by_storage_.emplace(storage, std::move(watched));
    if (watching_ == at::INVALID_CALLBACK_HANDLE)
      watching_ = at::addGlobalCallback(at::RecordFunctionCallback(before_operator)
                                            .needsInputs(true)
                                            .scopes({at::RecordScope::FUNCTION}));
  }

  template <typename Which>
  void remove(Which&& which) {
    const std::lock_guard lock(mutex_);
    std::erase_if(by_storage_, [&](const auto& entry) { return which(entry.second); });
    // Operators pay for the callback: only while there is something to look for.
    if (!by_storage_.empty() || watching_ == at::INVALID_CALLBACK_HANDLE) return;
    at::removeCallback(watching_);
    watching_ = at::INVALID_CALLBACK_HANDLE;
  }

  void find(const at::Tensor& tensor, std::vector<Watched>& found) const {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const std::shared_lock lock(mutex_);
    const auto range = by_storage_.equal_range(tensor.storage().unsafeGetStorageImpl());
    for (auto at = range.first; at != range.second; ++at) found.push_back(at->second);
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_multimap<const void*, Watched> by_storage_;
  at::CallbackHandle watching_ = at::INVALID_CALLBACK_HANDLE;
};

Table& table() {
  static auto* const whole = new Table;  // outlives statics that hold models
  return *whole;
}

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& fn) {
  std::vector<Watched> found;
  for (const c10::IValue& input : fn.inputs()) {
    if (input.isTensor()) {
      table().find(input.toTensor(), found);
    } else if (input.isTensorList()) {  // the weights of an LSTM
      for (const at::Tensor& tensor : input.toTensorVector()) table().find(tensor, found);
    }
  }
  for (const Watched& watched : found) (*watched.before_use)(watched.index);
  return nullptr;
}

}  // namespace

WeightGate::WeightGate(std::function<void(std::size_t)> before_use)
    : before_use_(std::make_shared<const BeforeUse>(std::move(before_use))) {}

WeightGate::~WeightGate() {
  table().remove([this](const Watched& w) { return w.before_use == before_use_; });
}

void WeightGate::watch(const std::vector<at::Tensor>& weights, std::size_t index) {
  for (const at::Tensor& weight : weights)
    table().add(weight.storage().unsafeGetStorageImpl(), {before_use_, index});
}

void WeightGate::forget(std::size_t index) {
  table().remove([&](const Watched& w) { return w.before_use == before_use_ && w.index == index; });
}

}  // namespace linerate::torch_adapter
