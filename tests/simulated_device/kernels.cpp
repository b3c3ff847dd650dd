// How an operator runs on a simulated device: its CPU kernel, on the memory that kernels see.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "simulated_device/memory.hpp"
#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

bool is_here(const at::Tensor& t) { return t.defined() && t.device().is_privateuseone(); }

/// "_foreach_add_.Scalar" without its namespace.
std::string short_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const std::string plain = name.name.substr(name.name.find("::") + 2);
  return name.overload_name.empty() ? plain : plain + "." + name.overload_name;
}

/// CPU kernels have another name for what a device has a name of its own.
const char* name_on_cpu(const std::string& name) {
  if (name == "aten::convolution_overrideable") return "aten::convolution";
  if (name == "aten::convolution_backward_overrideable") return "aten::convolution_backward";
  return nullptr;
}

/// Which operators have the host wait on a GPU: what they give has a size that depends on values,
/// or they look at a solver's status. CUDA's kernels of these copy something to the host and wait
/// for it (ATen/native/cuda: Nonzero, Unique, SummaryOps, Repeat; BatchLinearAlgebra's check of
/// infos).
bool makes_host_wait(const std::string& operator_name) {
  constexpr std::string_view names[] = {"aten::_local_scalar_dense",
                                        "aten::_linalg_eigh",
                                        "aten::_linalg_svd",
                                        "aten::_unique",
                                        "aten::_unique2",
                                        "aten::bincount",
                                        "aten::equal",
                                        "aten::histc",
                                        "aten::linalg_cholesky",
                                        "aten::linalg_eig",
                                        "aten::linalg_eigh",
                                        "aten::linalg_inv",
                                        "aten::linalg_solve",
                                        "aten::masked_select",
                                        "aten::nonzero",
                                        "aten::repeat_interleave",
                                        "aten::unique_consecutive",
                                        "aten::unique_dim"};
  return std::find(std::begin(names), std::end(names), operator_name) != std::end(names);
}

/// One call of an operator.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        stack_(stack),
        arguments_(op.schema().arguments().size()),
        device_(of_thread().device),
        given_(stack.end() - static_cast<std::ptrdiff_t>(arguments_), stack.end()) {}

  void run() {
    for (std::size_t i = 0; i < arguments_; ++i) replace_argument(i);
    require_one_device();
    const int stream = of_thread().streams[device_];
    if (makes_host_wait(op_.schema().name()) || reads_mask_) {
      work(device_, stream, short_name(op_), reads_, {}, 0);
      host_waits(device_, stream, short_name(op_));
    }
    run_on_cpu();
    keep_what_was_resized();
    for (std::size_t i = 0; i < op_.schema().returns().size(); ++i) replace_result(i);
    // What only makes views touches no memory.
    if (writes_something_) work(device_, stream, short_name(op_), reads_, writes_, launches());
  }

 private:
  bool writes(std::size_t argument) const {
    const c10::Argument& it = op_.schema().arguments()[argument];
    if (it.alias_info() && it.alias_info()->isWrite()) return true;
    // Its schema does not say that it writes the running mean and variance, in training.
    return op_.schema().name() == "aten::native_batch_norm" && (argument == 3 || argument == 4) &&
           given_[5].toBool();
  }

  void replace_argument(std::size_t i) {
    c10::IValue& value = stack_[stack_.size() - arguments_ + i];
    if (value.isTensor()) {
      value = replaced(value.toTensor(), i);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(replaced(t, i));
      longest_list_ = std::max(longest_list_, list.size());
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
        list.push_back(t ? std::optional(replaced(*t, i)) : std::nullopt);
      value = list;
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      if (value.toDevice().has_index()) device_ = value.toDevice().index();
      value = c10::Device(c10::kCPU);
    }
  }

  at::Tensor replaced(const at::Tensor& tensor, std::size_t argument) {
    if (!is_here(tensor)) {
      if (tensor.defined() && tensor.dim() > 0) elsewhere_.push_back(tensor);
      return tensor;
    }
    devices_.push_back(device_ = tensor.device().index());
    given_tensors_.push_back(tensor);
    const bool is_written = writes(argument);
    // Where a mask stands for indices, how many there are has to be known.
    reads_mask_ |= op_.schema().name() == "aten::_index_put_impl_" && argument == 1 &&
                   (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
    // CPU kernels may give an `out` other sizes.
    const bool is_out = is_written && op_.schema().arguments()[argument].kwarg_only();
    const at::Tensor seen =
        is_out ? at::empty({0}, tensor.options().device(at::kCPU)) : seen_by_kernels(tensor);
    if (is_written) written_.emplace_back(tensor, seen);
    add(tensor, is_written ? writes_ : reads_);
    return seen;
  }

  static void add(const at::Tensor& tensor, std::vector<Range>& to) {
    const std::vector<Range> ranges = ranges_of(tensor);
    to.insert(to.end(), ranges.begin(), ranges.end());
  }

  /// As on a GPU: of tensors on the CPU an operator takes numbers, which have no dimensions.
  void require_one_device() const {
    const bool is_one = std::all_of(devices_.begin(), devices_.end(),
                                    [&](int device) { return device == devices_.front(); });
    TORCH_CHECK(is_one && (devices_.empty() || elsewhere_.empty()), short_name(op_),
                ": expected all tensors on one device, found ",
                is_one ? "some on the CPU" : "several devices");
  }

  void run_on_cpu() {
    const c10::NoGradGuard no_grad;
    const char* const other = name_on_cpu(op_.schema().name());
    if (!other) return op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    if (arguments_ > 9) {  // backward: the sizes of a bias come before strides
      const at::Tensor weight = (stack_.end() - arguments_ + 2)->toTensor();
      stack_.insert(stack_.end() - static_cast<std::ptrdiff_t>(arguments_) + 3,
                    c10::IValue(std::vector<std::int64_t>{weight.size(0)}));
    }
    c10::Dispatcher::singleton().findSchemaOrThrow(other, "").callBoxed(&stack_);
  }

  void keep_what_was_resized() {
    for (const auto& [there, seen] : written_) {
      if (seen.sizes() == there.sizes() &&
          (seen.numel() == 0 || seen.const_data_ptr() == for_kernels(there.const_data_ptr())))
        continue;
      if (seen.sizes() != there.sizes()) {
        there.resize_(seen.sizes());
        add(there, writes_);
      }
      if (seen.numel() > 0) seen_by_kernels(there).copy_(seen);
    }
    writes_something_ = !written_.empty();
  }

  void replace_result(std::size_t i) {
    c10::IValue& value = stack_[stack_.size() - op_.schema().returns().size() + i];
    const c10::AliasInfo* const alias = op_.schema().returns()[i].alias_info();
    if (alias && alias->isWrite()) {  // an argument itself
      for (std::size_t a = 0; a < arguments_; ++a) {
        const c10::AliasInfo* const of_argument = op_.schema().arguments()[a].alias_info();
        if (of_argument && *of_argument == *alias) value = given_[a];
      }
    } else if (value.isTensor()) {
      value = result(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(result(t));
      value = list;
    }
  }

  at::Tensor result(const at::Tensor& made) {
    if (!made.defined()) return made;
    if (made.has_storage() && made.numel() > 0)
      if (const std::byte* const there = as_tensors_have_it(made.const_data_ptr()))
        for (const at::Tensor& given : given_tensors_) {
          const auto* const begin = static_cast<const std::byte*>(given.storage().data());
          if (there >= begin && there < begin + given.storage().nbytes())
            return view_of(given, made,
                           (there - begin) / static_cast<std::ptrdiff_t>(made.itemsize()));
        }
    const at::Tensor dense = made.is_non_overlapping_and_dense() ? made : made.contiguous();
    const at::Tensor fresh =
        at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(device(device_)));
    if (dense.numel() > 0)
      std::memcpy(for_kernels(fresh.data_ptr()), dense.const_data_ptr(), dense.nbytes());
    add(fresh, writes_);
    writes_something_ = true;
    return fresh;
  }

  static at::Tensor view_of(const at::Tensor& given, const at::Tensor& made, std::int64_t offset) {
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(given.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        made.dtype());
    view.unsafeGetTensorImpl()->set_storage_offset(offset);
    view.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides());
    return view;
  }

  std::int64_t launches() const {
    constexpr std::size_t kTensors = 64;  // of a launch, of those that take lists
    const bool takes_lists = op_.schema().name().find("_foreach_") != std::string::npos;
    return takes_lists ? static_cast<std::int64_t>((longest_list_ + kTensors - 1) / kTensors) : 1;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  const std::size_t arguments_;
  int device_;
  const std::vector<c10::IValue> given_;
  std::vector<at::Tensor> given_tensors_, elsewhere_;
  std::vector<int> devices_;
  std::vector<std::pair<at::Tensor, at::Tensor>> written_;  // there, what kernels see
  std::vector<Range> reads_, writes_;
  std::size_t longest_list_ = 0;
  bool reads_mask_ = false, writes_something_ = false;
};

/// Any operator, boxed: takes its arguments from the stack and leaves its results there.
void run_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, *stack).run(); }

/// Every operator that has no kernel of its own here.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_kernel>());
}

/// Those that would otherwise be made of others, which a device with kernels for lists does not do,
/// or refused.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&run_kernel>());
  m.impl("convolution_backward_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&run_kernel>());
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
    if (name.name.starts_with("aten::_foreach_"))
      m.impl(c10::toString(name).substr(6).c_str(),
             torch::CppFunction::makeFromBoxedFunction<&run_kernel>());
}

}  // namespace
}  // namespace linerate::simulated
