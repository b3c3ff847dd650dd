#include "linerate/torch_codecs/tensor_codec.hpp"

#include <map>
#include <tuple>
#include <utility>

namespace linerate::torch_codecs {

const at::Tensor& KeptTensor::now() const {
  if (lent_.defined()) now_ = {std::exchange(lent_, {}).to(now_.value.device()), {}};
  return now_.value;
}

/// In place: the memory belongs to the stream that wrote it. Arrays come first. A part of one whose
/// numbers were elsewhere before takes them from there afterwards.
void KeptTensor::undo_if(const std::vector<KeptTensor*>& kept, const at::Tensor& none) {
  std::map<const at::TensorImpl*, at::Tensor> before;  // by array
  std::vector<KeptTensor*> alone;
  for (KeptTensor* const one : kept) {
    if (!one->next_.value.defined()) continue;
    one->now();
    const auto& [next, now] = std::tie(one->next_, one->now_);
    const bool are_alike = next.array.defined() && now.array.defined() &&
                           next.array.sizes() == now.array.sizes() && next.offset() == now.offset();
    if (!are_alike) {
      alone.push_back(one);
      continue;
    }
    const auto [found, is_new] = before.emplace(next.array.unsafeGetTensorImpl(), now.array);
    if (is_new)
      at::where_out(one->next_.array, none, now.array, next.array);
    else if (!found->second.is_same(now.array))
      alone.push_back(one);
  }
  for (KeptTensor* const one : alone) {
    at::Tensor& next = one->next_.value;
    at::where_out(next, none, one->now().reshape(next.sizes()), next);
  }
}

void KeptTensor::keep() {
  if (!next_.value.defined()) return;
  now_ = std::exchange(next_, {});
  lent_.reset();
}

std::span<std::byte> KeptTensor::bytes() {
  lent_ = now().cpu().contiguous();
  return {static_cast<std::byte*>(lent_.data_ptr()), lent_.nbytes()};
}

compress::StateField state_field(std::string name, compress::Passing passing, KeptTensor& kept,
                                 bool is_array) {
  static compress::Kept<std::vector<float>> of_that_type;
  compress::StateField field(std::move(name), passing, of_that_type);
  field.is_array = is_array;
  field.kept = &kept;
  return field;
}

at::Tensor either(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return at::bitwise_or(a, b);
}

}  // namespace linerate::torch_codecs
