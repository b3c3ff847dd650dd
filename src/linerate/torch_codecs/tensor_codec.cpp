#include "linerate/torch_codecs/tensor_codec.hpp"

#include <utility>

namespace linerate::torch_codecs {

const at::Tensor& KeptTensor::now() const {
  if (lent_.defined()) now_ = std::exchange(lent_, {}).to(now_.device());
  return now_;
}

/// In place: the memory belongs to the stream that wrote it.
void KeptTensor::undo_if(const at::Tensor& none) {
  if (next_.defined()) at::where_out(next_, none, now().reshape(next_.sizes()), next_);
}

void KeptTensor::keep() {
  if (!next_.defined()) return;
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
