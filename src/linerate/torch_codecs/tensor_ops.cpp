#include "linerate/torch_codecs/tensor_ops.hpp"

#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

at::ScalarType type_of_half(DType half) { return half == DType::f16 ? at::kHalf : at::kBFloat16; }

std::vector<at::Tensor> halves_of(const std::vector<at::Tensor>& payloads, DType half) {
  std::vector<at::Tensor> halves;
  for (const at::Tensor& payload : payloads) halves.push_back(payload.view(type_of_half(half)));
  return halves;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool covers_all(const std::vector<TensorOps::Place>& places, const at::Tensor& array) {
  std::int64_t elements = 0;
  for (const TensorOps::Place& place : places) elements += place.elements;
  return elements == array.numel();
}

/// The payloads as one array, if they are laid out as the bucket is; else undefined.
at::Tensor joined_payload(const TensorOps::Sending& tensors, DType half) {
  if (!covers_all(tensors.places, tensors.values)) return {};
  const at::Tensor first = tensors.payloads.front().view(type_of_half(half));
  for (std::size_t i = 0; i < tensors.payloads.size(); ++i) {
    const at::Tensor& one = tensors.payloads[i];
    const std::int64_t at = (one.storage_offset() - tensors.payloads.front().storage_offset()) / 2;
    if (!one.is_alias_of(first) || at != tensors.places[i].first - tensors.places[0].first)
      return {};
  }
  return first.as_strided({tensors.values.numel()}, {1}, first.storage_offset());
}

}  // namespace

std::vector<at::Tensor> TensorOps::parts_of(const at::Tensor& array,
                                            const std::vector<Place>& places) {
  std::vector<at::Tensor> parts;
  parts.reserve(places.size());
  for (const Place& place : places) parts.push_back(array.narrow(0, place.first, place.elements));
  return parts;
}

void TensorOps::add_residuals(const Sending& tensors) {
  if (covers_all(tensors.places, tensors.values)) {
    at::add_out(const_cast<at::Tensor&>(tensors.next), tensors.residual, tensors.values);
    return;
  }
  if (!tensors.next.is_same(tensors.residual)) tensors.next.copy_(tensors.residual);
  at::_foreach_add_(parts_of(tensors.next, tensors.places),
                    parts_of(tensors.values, tensors.places));
}

TensorOps::Values TensorOps::corrected(const Sending& tensors) {
  if (!tensors.keeps_residual()) return gradients(tensors);
  add_residuals(tensors);
  return parts_of(tensors.next, tensors.places);
}

void TensorOps::Codec::encode_bucket(int round, const Sending& tensors) {
  const compress::KeepDenormals keep;
  const c10::NoGradGuard no_grad;
  begin(tensors.phase);
  encode_all(round, tensors);
}

void TensorOps::Codec::decode_bucket(int round, const Arriving& tensors) {
  const compress::KeepDenormals keep;
  const c10::NoGradGuard no_grad;
  begin_decode();
  decode_all(round, tensors);
}

TensorPayload TensorOps::Codec::do_encode(int round, const TensorInput& input) {
  const at::Tensor payload = at::empty({round_at(round).bytes}, options(at::kByte));
  encode_all(round, {input.gradient,
                     input.residual,
                     input.residual,
                     {{0, elements()}},
                     {payload},
                     {input.keys},
                     {this},
                     input.ranks,
                     input.phase,
                     input.loss_scale});
  return {sent_ < 0 ? payload : payload.narrow(0, 0, sent_), {}};
}

void TensorOps::Codec::do_decode(int round, const TensorArrived& arrived, const at::Tensor& mean) {
  decode_all(round, {mean, {{0, elements()}}, {arrived}, {this}});
}

void TensorOps::narrow(const Sending& tensors, DType half, float share) {
  const at::Tensor scaled = tensors.values * share;
  at::_foreach_copy_(halves_of(tensors.payloads, half), parts_of(scaled, tensors.places));
}

/// Tensors one after the other, in their payloads too, are one array; times `back` is exact if it
/// is a power of two: then it is part of the subtraction.
TensorOps::Flag TensorOps::narrow_and_keep(const Sending& tensors, DType half,
                                           const compress::HalfScale& scale) {
  add_residuals(tensors);
  const at::Tensor& v = tensors.next;
  Flag is_beyond;
  if (tensors.scale) is_beyond = at::linalg_vector_norm(v, kInfinity) > scale.limit;
  const at::Tensor cut = v.clamp(-scale.limit, scale.limit);
  int exponent = 0;
  const bool is_exact = std::frexp(scale.back, &exponent) == 0.5f;
  if (at::Tensor all = joined_payload(tensors, half); all.defined()) {
    at::mul_out(all, cut, at::scalar_tensor(scale.share));
    if (is_exact)
      v.sub_(all, scale.back);
    else
      v.sub_(all.to(at::kFloat).mul_(scale.back));
    return is_beyond;
  }
  const std::vector<at::Tensor> halves = halves_of(tensors.payloads, half);
  const std::vector<at::Tensor> parts = parts_of(cut.mul_(scale.share), tensors.places);
  at::_foreach_copy_(halves, parts);
  at::_foreach_copy_(parts, halves);
  is_exact ? v.sub_(cut, scale.back) : v.sub_(cut * scale.back);
  return is_beyond;
}

void TensorOps::widen(const Arriving& tensors, DType half, float by) {
  std::vector<at::Tensor> sums;
  for (std::size_t i = 0; i < tensors.places.size(); ++i) {
    check_sum(tensors.arrived[i], 2 * tensors.places[i].elements, name_of(half));
    sums.push_back(tensors.arrived[i].payloads[0]);
  }
  const std::vector<at::Tensor> means = parts_of(tensors.means, tensors.places);
  at::_foreach_copy_(means, halves_of(sums, half));
  if (by != 1) at::_foreach_mul_(means, by);
}

}  // namespace linerate::torch_codecs
