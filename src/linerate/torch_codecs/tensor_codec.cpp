#include "linerate/torch_codecs/tensor_codec.hpp"

#include <c10/core/GradMode.h>

#include <cstring>

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_codecs {
namespace {

/// f32 of the host as a tensor of a device: a view of it where that is the host itself.
at::Tensor to_device(std::span<const float> values, at::Device device) {
  auto* data = const_cast<float*>(values.data());
  const auto n = static_cast<std::int64_t>(values.size());
  if (n == 0) return at::empty({0}, at::TensorOptions().device(device).dtype(at::kFloat));
  return at::from_blob(data, {n}, at::kFloat).to(device);
}

/// Filled up with zeros to `room` bytes.
at::Tensor to_device(std::span<const std::byte> bytes, std::int64_t room, at::Device device) {
  at::Tensor tensor = at::zeros({room}, at::kByte);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor.to(device);
}

template <class T>
void to_host(const at::Tensor& from, std::span<T> to) {
  const at::Tensor host = from.cpu().contiguous();
  if (!to.empty() && host.data_ptr() != to.data())
    std::memcpy(to.data(), host.data_ptr(), to.size_bytes());
}

}  // namespace

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

TensorCodec::TensorCodec(Making making)
    : making_(std::move(making)),
      rounds_(making_.travels_dense ? std::vector<compress::Round>()
                                    : making_.compressor->rounds(making_.shape)) {}

at::Tensor either(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return at::bitwise_or(a, b);
}

void TensorCodec::begin(int phase) {
  if (phase == phase_) return;
  phase_ = phase;
  rounds_ = compress::rounds_of(*making_.compressor, making_.shape, phase_);
}

TensorPayload TensorCodec::encode(int round, const TensorInput& input) {
  const compress::KeepDenormals keep;
  const c10::NoGradGuard no_grad;
  begin(input.phase);
  TensorPayload payload = do_encode(round, input);
  const std::int64_t room = round_at(round).bytes;
  LINERATE_CHECK(payload.bytes.numel() <= room, "a payload that is longer than its round");
  if (payload.bytes.numel() < room && payload.used.defined())
    payload.bytes = at::constant_pad_nd(payload.bytes, {0, room - payload.bytes.numel()});
  return payload;
}

void TensorCodec::decode(int round, const TensorArrived& arrived, const at::Tensor& mean) {
  const compress::KeepDenormals keep;
  const c10::NoGradGuard no_grad;
  begin_decode();
  do_decode(round, arrived, mean);
}

void TensorCodec::undo_if(const at::Tensor& none) {
  for (const compress::StateField& field : state())
    if (auto* kept = dynamic_cast<KeptTensor*>(field.kept)) kept->undo_if(none);
}

std::size_t TensorCodec::encode(int round, const compress::Input& input,
                                std::span<std::byte> payload) {
  TensorInput of_tensors{to_device(input.gradient, device()),
                         {},
                         input.keys,
                         input.ranks,
                         input.phase,
                         input.loss_scale};
  if (!input.residual.empty()) of_tensors.residual = to_device(input.residual, device());
  const TensorPayload sent = encode(round, of_tensors);
  if (!input.residual.empty()) to_host(of_tensors.residual, input.residual);
  const auto bytes =
      to_index(sent.used.defined() ? sent.used.item<std::int64_t>() : sent.bytes.numel());
  to_host(sent.bytes, payload.first(bytes));
  return bytes;
}

void TensorCodec::decode(int round, const compress::Arrived& arrived, std::span<float> mean) {
  TensorArrived of_tensors{{}, arrived.ranks, {}};
  std::vector<std::int64_t> used;
  const bool is_coded = !rounds_.empty();
  const std::int64_t room = is_coded ? round_at(round).bytes : 0;
  const bool is_bound =
      is_coded && round_at(round).combine == compress::Combine::gather && round_at(round).is_bound;
  for (std::size_t p = 0; p < arrived.payloads.size(); ++p) {
    const auto bytes = static_cast<std::int64_t>(arrived.payloads[p].size());
    if (is_bound && bytes > room)
      compress::refuse_payload("a codec over tensors", p, "more bytes than its bound");
    used.push_back(bytes);
    of_tensors.payloads.push_back(
        to_device(arrived.payloads[p], is_bound ? room : bytes, device()));
  }
  if (is_bound) {
    compress::check_one_a_rank(arrived, "a codec over tensors");
    of_tensors.used = at::tensor(used, at::kLong).to(device());
  }
  const at::Tensor of_mean = to_device(mean, device());
  decode(round, of_tensors, of_mean);
  if (damaged_.defined() && damaged_.item<bool>())
    throw InputError("a codec over tensors: a payload is none that the method sends");
  to_host(of_mean, mean);
}

}  // namespace linerate::torch_codecs
