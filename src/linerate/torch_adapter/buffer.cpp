#include "linerate/torch_adapter/buffer.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"

namespace linerate::torch_adapter {
namespace {

[[noreturn]] void refuse(const std::string& expected, const std::string& found,
                         const std::string& next) {
  throw UsageError(
      fmt::format("buffer of a tensor: expected {}, found {}; {}", expected, found, next));
}

/// The element type of a tensor whose memory may travel as it is.
DType checked_type(const at::Tensor& t) {
  if (!t.defined()) refuse("a tensor", "an undefined one", "create it first");
  if (t.layout() != at::kStrided)
    refuse("a dense tensor", fmt::format("layout {}", c10::str(t.layout())), "pass to_dense()");
  if (!t.device().is_cpu())
    refuse("a tensor on the CPU", fmt::format("one on {}", t.device().str()),
           "pass cpu(): collectives move host memory");
  if (!t.is_contiguous() || t.is_neg() || t.is_conj())
    refuse("contiguous memory",
           t.is_contiguous()
               ? std::string("a tensor that is negated lazily")
               : fmt::format("sizes [{}] with strides [{}]", fmt::join(t.sizes(), ", "),
                             fmt::join(t.strides(), ", ")),
           "pass resolve_neg().contiguous(), and copy back what arrived in it");
  const std::optional<DType> type = dtype_of(t.scalar_type());
  if (!type)
    refuse("float, double, half, bfloat16, int, long or byte", c10::toString(t.scalar_type()),
           "convert it with to()");
  return *type;
}

}  // namespace

comm::Buffer buffer(at::Tensor& tensor) {
  const DType type = checked_type(tensor);
  return {tensor.data_ptr(), {tensor.numel()}, type};
}

comm::ConstBuffer buffer(const at::Tensor& tensor) {
  const DType type = checked_type(tensor);
  return {tensor.const_data_ptr(), {tensor.numel()}, type};
}

}  // namespace linerate::torch_adapter
