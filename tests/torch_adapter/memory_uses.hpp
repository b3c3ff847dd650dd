// Which memory the tasks of an enqueued step read and write, operator by operator.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace linerate::torch_adapter {

/// What a task did, of those that StreamSteps calls.
struct MemoryUse {
  struct Range {
    const std::byte *begin = nullptr, *end = nullptr;
    bool overlaps(const Range& o) const { return begin < o.end && o.begin < end; }
  };
  std::string title;
  std::vector<Range> read, written;
  std::vector<c10::Storage> made;  // kept, so that nobody gets this memory again
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> found;  // read, and made by none of it

  /// Whether the order of the two, which are not one task, makes a difference.
  bool is_apart_from(const MemoryUse& other) const {
    const auto meet = [](const std::vector<Range>& these, const std::vector<Range>& those) {
      return std::any_of(these.begin(), these.end(), [&](const Range& one) {
        return std::any_of(those.begin(), those.end(),
                           [&](const Range& two) { return one.overlaps(two); });
      });
    };
    return meet(written, other.written) || meet(written, other.read) || meet(read, other.written);
  }
  /// Whether memory that it found has been freed since.
  bool has_lost_memory() const {
    return std::any_of(found.begin(), found.end(), [](const auto& s) { return s.expired(); });
  }
};

/// Of the tasks of this thread, while it lives. What an operator writes is what its schema says,
/// and what it returns; views touch no memory.
class MemoryUses {
 public:
  MemoryUses()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(begin, end)
                .needsInputs(true)
                .needsOutputs(true)
                .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}))) {
    tasks.clear();
    before_task = [] {};
    is_in_task = false;
  }
  ~MemoryUses() {
    at::removeCallback(handle_);
    tasks.clear();
  }
  MemoryUses(const MemoryUses&) = delete;
  MemoryUses& operator=(const MemoryUses&) = delete;

  /// In the order of enqueuing.
  static inline thread_local std::vector<MemoryUse> tasks;
  /// Called before each.
  static inline thread_local std::function<void()> before_task;

 private:
  static bool is_view(const c10::FunctionSchema& schema) {
    const auto& returns = schema.returns();
    return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
      return r.alias_info() && !r.alias_info()->isWrite();
    });
  }
  /// Numbers of C++ are no memory of a device, though operators may get them as tensors.
  template <typename Act>
  static void for_each_tensor(const c10::IValue& value, Act&& act) {
    if (value.isTensorList())
      for (const at::Tensor& one : value.toTensorVector()) act(one);
    if (!value.isTensor()) return;
    const at::Tensor& tensor = value.toTensor();
    const bool lies_there = tensor.defined() && tensor.has_storage() &&
                            !tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (lies_there) act(tensor);
  }
  /// From its first element to its last.
  static MemoryUse::Range range_of(const at::Tensor& tensor) {
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    const auto* const first = static_cast<const std::byte*>(tensor.const_data_ptr());
    if (tensor.numel() == 0) return {first, first};
    return {first, first + (last + 1) * static_cast<std::int64_t>(tensor.itemsize())};
  }
  static bool has_made(const MemoryUse& task, const at::Tensor& tensor) {
    const c10::StorageImpl* const own = tensor.storage().unsafeGetStorageImpl();
    return std::any_of(task.made.begin(), task.made.end(),
                       [&](const c10::Storage& s) { return s.unsafeGetStorageImpl() == own; });
  }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    if (function.scope() == at::RecordScope::USER_SCOPE) {
      before_task();
      tasks.emplace_back().title = function.name();
      is_in_task = true;
    } else if (is_in_task) {
      note_arguments(function);
    }
    return nullptr;
  }
  static void note_arguments(const at::RecordFunction& function) {
    const auto schema = function.operator_schema();
    if (!schema || is_view(*schema)) return;
    const auto arguments = function.inputs();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* const alias = schema->arguments()[i].alias_info();
      for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        MemoryUse& task = tasks.back();
        if (has_made(task, tensor)) return;
        (alias && alias->isWrite() ? task.written : task.read).push_back(range_of(tensor));
        task.found.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            tensor.storage().unsafeGetStorageImpl()));
      });
    }
  }
  static void end(const at::RecordFunction& function, at::ObserverContext*) {
    if (function.scope() == at::RecordScope::USER_SCOPE) {
      is_in_task = false;
      return;
    }
    const auto schema = function.operator_schema();
    if (!is_in_task || !schema || is_view(*schema)) return;
    for (std::size_t i = 0; i < schema->returns().size(); ++i) {
      if (schema->returns()[i].alias_info()) continue;  // an argument
      for_each_tensor(function.outputs()[i], [](const at::Tensor& tensor) {
        MemoryUse& task = tasks.back();
        if (has_made(task, tensor)) return;
        task.made.push_back(tensor.storage());
        task.written.push_back(range_of(tensor));
      });
    }
  }

  static inline thread_local bool is_in_task = false;
  at::CallbackHandle handle_;
};

}  // namespace linerate::torch_adapter
