#include "linerate/torch_codecs/tensor_ops.hpp"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {
namespace {

/// f32 of the host as a tensor of a device: a view of it where that is the host itself.
at::Tensor to_device(std::span<const float> values, at::Device device) {
  auto* data = const_cast<float*>(values.data());
  const auto n = static_cast<std::int64_t>(values.size());
  if (n == 0) return at::empty({0}, at::TensorOptions().device(device).dtype(at::kFloat));
  return at::from_blob(data, {n}, at::kFloat).to(device);
}

/// A copy, because payloads may lie at any address.
at::Tensor to_device(std::span<const std::byte> bytes, at::Device device) {
  const at::Tensor tensor = at::empty({std::ssize(bytes)}, at::kByte);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor.to(device);
}

template <class T>
void to_host(const at::Tensor& from, std::span<T> to) {
  const at::Tensor host = from.cpu().contiguous();
  if (!to.empty() && host.data_ptr() != to.data())
    std::memcpy(to.data(), host.data_ptr(), to.size_bytes());
}

at::ScalarType type_of_half(DType half) { return half == DType::f16 ? at::kHalf : at::kBFloat16; }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Whether the tensors fill the array, so that one operator on the array serves for all.
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
  return mapped(places,
                [&](const Place& place) { return array.narrow(0, place.first, place.elements); });
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

void TensorOps::Arriving::note_damage(const Damage& damage) const {
  codecs.front()->note_damage(damage);
}

namespace {

/// The tensors of a bucket that are coded together, and the part of the bucket's arrays in which
/// they lie.
struct Together {
  std::size_t begin, end;      // tensors
  std::int64_t first, beyond;  // elements of the arrays

  at::Tensor part_of(const at::Tensor& array) const {
    return array.defined() ? array.narrow(0, first, beyond - first) : array;
  }
  template <class T>
  std::vector<T> those_of(const std::vector<T>& by_tensor) const {
    if (by_tensor.empty()) return {};
    return {by_tensor.begin() + static_cast<std::ptrdiff_t>(begin),
            by_tensor.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  std::vector<TensorOps::Place> places_of(const std::vector<TensorOps::Place>& places) const {
    std::vector<TensorOps::Place> moved = those_of(places);
    for (TensorOps::Place& place : moved) place.first -= first;
    return moved;
  }
};

/// Cuts a bucket into parts of whole tensors, in their order. Example with at most 16 million
/// elements: tensors of 10, 4, 9 and 20 million make three parts. They are the first two, the
/// third, and the fourth, which is larger than the limit by itself.
std::vector<Together> in_turn(const std::vector<TensorOps::Place>& places, std::int64_t most) {
  std::vector<Together> parts;
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < places.size(); ++t) {
    const auto& [first, elements] = places[t];
    sum += elements;
    if (parts.empty() || sum > most) {
      parts.push_back({t, t, first, first});
      sum = elements;
    }
    Together& part = parts.back();
    part.end = t + 1;
    part.first = std::min(part.first, first);
    part.beyond = std::max(part.beyond, first + elements);
  }
  return parts;
}

TensorOps::Sending part_of(const TensorOps::Sending& tensors, const Together& part) {
  TensorOps::Sending some = tensors;
  some.values = part.part_of(tensors.values);
  some.residual = part.part_of(tensors.residual);
  some.next = tensors.next.is_same(tensors.residual) ? some.residual : part.part_of(tensors.next);
  some.places = part.places_of(tensors.places);
  some.payloads = part.those_of(tensors.payloads);
  if (tensors.used.defined())
    some.used = tensors.used.narrow(0, static_cast<std::int64_t>(part.begin),
                                    static_cast<std::int64_t>(part.end - part.begin));
  some.keys = part.those_of(tensors.keys);
  some.codecs = part.those_of(tensors.codecs);
  return some;
}
TensorOps::Arriving part_of(const TensorOps::Arriving& tensors, const Together& part) {
  TensorOps::Arriving some = tensors;
  some.means = part.part_of(tensors.means);
  some.places = part.places_of(tensors.places);
  some.arrived = part.those_of(tensors.arrived);
  some.codecs = part.those_of(tensors.codecs);
  return some;
}

}  // namespace

/// Elements between the parts keep their residual. Later rounds go on with the numbers that the
/// first round wrote.
void TensorCodec::encode_bucket(int round, const Sending& tensors) {
  const compress::KeepDenormals keep;
  const c10::NoGradGuard no_grad;
  const std::vector<Together> parts = in_turn(tensors.places, tensors.together);
  if (parts.size() == 1) {
    encode_all(round, tensors);
    any_beyond_ = is_beyond();
    return;
  }
  if (round == 0 && tensors.next.defined() && !tensors.next.is_same(tensors.residual))
    tensors.next.copy_(tensors.residual);
  any_beyond_.reset();
  for (const Together& part : parts) {
    Codec& first = *tensors.codecs[part.begin];
    first.encode_all(round, part_of(tensors, part));
    any_beyond_ = either(any_beyond_, first.is_beyond());
  }
}

void TensorCodec::decode_bucket(int round, const Arriving& tensors) {
  const compress::KeepDenormals keep;
  const c10::NoGradGuard no_grad;
  const std::vector<Together> parts = in_turn(tensors.places, tensors.together);
  Damage damage;
  for (const Together& part : parts) {
    Codec& first = *tensors.codecs[part.begin];
    first.damaged_.reset();
    if (tensors.block) tensors.block->goes_on = part.end < tensors.places.size();
    first.decode_all(round, parts.size() == 1 ? tensors : part_of(tensors, part));
    damage = either(damage, first.damaged_);
  }
  damaged_ = damage;
}

std::vector<KeptTensor*> TensorCodec::kept() {
  std::vector<KeptTensor*> all;
  for (const compress::StateField& field : state())
    if (auto* const one = dynamic_cast<KeptTensor*>(field.kept)) all.push_back(one);
  return all;
}

std::size_t TensorCodec::encode(int round, const compress::Input& input,
                                std::span<std::byte> payload) {
  const auto of_device = at::TensorOptions().device(making_.device);
  const at::Tensor room = at::empty({std::ssize(payload)}, of_device.dtype(at::kByte));
  const at::Tensor used = at::full({1}, std::ssize(payload), of_device.dtype(at::kLong));
  at::Tensor residual;
  if (!input.residual.empty()) residual = to_device(input.residual, making_.device);
  encode_bucket(round, {to_device(input.gradient, making_.device),
                        residual,
                        residual,
                        {{0, making_.shape.elements}},
                        {room},
                        used,
                        {input.keys},
                        {this},
                        input.ranks,
                        input.phase,
                        input.loss_scale});
  if (residual.defined()) to_host(residual, input.residual);
  const std::size_t bytes = to_index(sent_ < 0 ? used.item<std::int64_t>() : sent_);
  to_host(room, payload.first(bytes));
  return bytes;
}

void TensorCodec::decode(int round, const compress::Arrived& arrived, std::span<float> mean) {
  TensorArrived of_tensors{{}, arrived.ranks, {}};
  std::vector<std::int64_t> used;
  for (const std::span<const std::byte> payload : arrived.payloads) {
    used.push_back(std::ssize(payload));
    of_tensors.payloads.push_back(to_device(payload, making_.device));
  }
  of_tensors.used = at::tensor(used, at::kLong).to(making_.device);
  const at::Tensor of_mean = to_device(mean, making_.device);
  decode_bucket(
      round,
      {of_mean, {{0, making_.shape.elements}}, {of_tensors}, {this}, nullptr, arrived.ranks});
  if (damaged_.defined() && damaged_.item<bool>())
    throw InputError(
        "a codec over tensors: received a malformed payload, not one that the method sends");
  to_host(of_mean, mean);
}

void TensorOps::narrow(const Sending& tensors, DType half, float share) {
  const at::Tensor scaled = tensors.values * share;
  at::_foreach_copy_(viewed(tensors.payloads, type_of_half(half)),
                     parts_of(scaled, tensors.places));
}

/// Tensors that lie one after the other, in their payloads too, are one array. A product with
/// `back` is exact if `back` is a power of two. Then it is part of the subtraction.
TensorOps::Flag TensorOps::narrow_and_keep(const Sending& tensors, DType half,
                                           const compress::HalfScale& scale) {
  add_residuals(tensors);
  const at::Tensor& v = tensors.next;
  Flag is_beyond;
  if (tensors.loss_scale) is_beyond = at::linalg_vector_norm(v, kInfinity) > scale.limit;
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
  const std::vector<at::Tensor> halves = viewed(tensors.payloads, type_of_half(half));
  const std::vector<at::Tensor> parts = parts_of(cut.mul_(scale.share), tensors.places);
  at::_foreach_copy_(halves, parts);
  at::_foreach_copy_(parts, halves);
  is_exact ? v.sub_(cut, scale.back) : v.sub_(cut * scale.back);
  return is_beyond;
}

void TensorOps::widen(const Arriving& tensors, DType half, float by) {
  const Values sums = sums_in(tensors, type_of_half(half), name_of(half),
                              [&](std::size_t t) { return tensors.places[t].elements; });
  const Values all = means(tensors);
  at::_foreach_copy_(all, sums);
  if (by != 1) at::_foreach_mul_(all, by);
}

// Makes codecs over tensors by a compressor's name and options. The compressor itself is that of
// linerate/compress: rounds, phases and settings stand there once. Only codec() differs: it makes
// the same codec template with TensorOps in place of HostOps.
//
// A program's own compressor has a codec for memory of the host only. So it is refused here, with
// the list of those that have one over tensors.

std::unique_ptr<const compress::Compressor> over_tensors(const doc::Component& compressor,
                                                         at::Device device) {
  auto made = compress::make_built_in(
      compressor, [device](const compress::Shape& shape, const compress::CodecChoice& choice) {
        return compress::made_of<TensorOps>({shape, device}, choice);
      });
  if (!made)
    throw UsageError(
        fmt::format("compressor {} has no implementation over tensors yet; those that "
                    "have one: {}",
                    compressor.name, fmt::join(compress::built_in_compressors(), ", ")));
  return made;
}

std::unique_ptr<TensorCodec> make_tensor_codec(const doc::Component& compressor,
                                               const compress::Shape& shape, at::Device device) {
  std::unique_ptr<compress::Codec> codec = over_tensors(compressor, device)->codec(shape);
  return std::unique_ptr<TensorCodec>(static_cast<TensorCodec*>(codec.release()));
}

}  // namespace linerate::torch_codecs
