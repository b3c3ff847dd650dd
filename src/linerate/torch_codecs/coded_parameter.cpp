#include "linerate/torch_codecs/coded_parameter.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_codecs {

CodedParameter::CodedParameter(std::string name, const compress::Shape& shape,
                               compress::CompressedTensorState saved, at::Device device)
    : name_(std::move(name)),
      shape_(shape),
      device_(device),
      loaded_(std::move(saved)),
      may_owe_elsewhere_(!loaded_.method.empty() || !loaded_.residual.empty()) {
  if (loaded_.residual.size() != to_index(shape.elements)) loaded_.residual.clear();
}

at::Tensor CodedParameter::zeros() const {
  return at::zeros({shape_.elements}, at::TensorOptions().device(device_).dtype(at::kFloat));
}

/// What goes on with another method is found on the host, by what does it there.
void CodedParameter::use(const compress::TensorMethod& method) {
  if (label_ == method.label) return;
  const compress::CompressedTensorState before = state();
  label_ = method.label;
  keeps_ = compress::keeps_residual(*method.compressor);
  residual_.reset();
  next_.reset();
  was_sent_ = false;
  codec_.reset();
  two_phase_.reset();
  if (method.two_phase)
    two_phase_ = std::make_unique<TensorTwoPhase>(*method.compressor, shape_.elements, method.ranks,
                                                  method.rank, device_);
  else
    codec_ = as_tensor_codec(method.is_dense ? method.compressor->of_dense(shape_)
                                             : method.compressor->codec(shape_));
  loaded_ = {};
  if (!before.residual.empty() || !before.method.empty()) {
    compress::CodedTensor host(name_, shape_, before);
    host.use(method);
    load(host.state());
  }
  if (keeps_ && !residual_.defined()) residual_ = zeros();
  if (keeps_) next_ = at::empty_like(residual_);
  is_lodger_ = false;
}

void CodedParameter::live_in(const at::Tensor& residual, const at::Tensor& next) {
  if (!keeps_) return;
  residual.copy_(residual_);
  residual_ = residual;
  next_ = next;
  is_lodger_ = true;
}

void CodedParameter::load(const compress::CompressedTensorState& from) {
  set_residual(from);
  two_phase_ ? two_phase_->load(from.two_phase) : codec_->load(from.codec);
}

void CodedParameter::set_residual(const compress::CompressedTensorState& from) {
  if (from.residual.empty()) return;
  residual_ = zeros();
  residual_.copy_(
      at::from_blob(const_cast<float*>(from.residual.data()), {shape_.elements}, at::kFloat));
}

/// Nothing waits in the steps after the first of them.
at::Tensor CodedParameter::begin_dense(int rank) {
  if (std::exchange(may_owe_elsewhere_, false)) {
    loaded_ = state();
    compress::own_all_owed(loaded_, rank);
    residual_.reset();
    is_lodger_ = false;
    set_residual(loaded_);
    loaded_.residual.clear();
    label_.clear();
    next_.reset();
    codec_.reset();
    two_phase_.reset();
    keeps_ = was_sent_ = false;
  }
  sends_residual_ = residual_.defined();
  return residual_;
}

void CodedParameter::begin_step(std::uint64_t seed, std::int64_t step, int rank,
                                const at::Tensor& gradient, std::optional<float> loss_scale) {
  const compress::KeepDenormals keep;
  loss_scale_ = loss_scale;
  keys_ = compress::keys_of_step(seed, step, name_, rank);
  is_touched_ = may_owe_elsewhere_ = true;
  sends_residual_ = !keeps_ && residual_.defined();
  if (keeps_ && !is_lodger_)
    next_.copy_(residual_);
  else if (sends_residual_)
    gradient.add_(residual_);
}

void CodedParameter::take_dense(const at::Tensor& mean) {
  is_touched_ = true;
  codec_->decode(0, {}, mean);
}

bool CodedParameter::keep(const at::Tensor& none) {
  const compress::KeepDenormals denormals;
  const bool sent = std::exchange(sends_residual_, false) && residual_.defined();
  if (sent) residual_.mul_(none);
  was_sent_ = was_sent_ || sent;
  if (!std::exchange(is_touched_, false)) return sent;
  if (keeps_ && !is_lodger_) at::where_out(residual_, none, residual_, next_);
  if (two_phase_) {
    two_phase_->undo_if(none);
    two_phase_->keep();
  } else {
    codec_->undo_if(none);
    codec_->keep();
  }
  return sent;
}

void CodedParameter::forget_sent(bool was_none) {
  if (std::exchange(was_sent_, false) && !was_none) residual_.reset();
}

void CodedParameter::drop() {
  sends_residual_ = false;
  if (!std::exchange(is_touched_, false)) return;
  two_phase_ ? two_phase_->drop() : codec_->drop();
}

TensorInput CodedParameter::input_of(const at::Tensor& gradient, int ranks, int phase) const {
  return {gradient, keeps_ ? next_ : at::Tensor(), keys_, ranks, phase, loss_scale_};
}

TensorPayload CodedParameter::encode(int round, const at::Tensor& gradient, int ranks, int phase) {
  const TensorInput input = input_of(gradient, ranks, phase);
  TensorPayload payload = two_phase_ ? TensorPayload{two_phase_->encode_dense(input), {}}
                                     : codec_->encode(round, input);
  sent_ = payload.bytes.numel();
  return payload;
}

void CodedParameter::decode(int round, const TensorArrived& arrived, const at::Tensor& mean) {
  if (two_phase_)
    two_phase_->decode_dense(arrived.payloads[0], arrived.ranks, mean);
  else
    codec_->decode(round, arrived, mean);
}

TensorPayload CodedParameter::encode_chunk(int chunk, const at::Tensor& gradient, int ranks) {
  return two_phase_->encode(chunk, input_of(gradient, ranks, -1));
}

TensorPayload CodedParameter::reduce_chunk(const TensorArrived& arrived) {
  return two_phase_->reduce(arrived, keys_);
}

void CodedParameter::finish_chunks(const std::vector<TensorArrived>& owners,
                                   const at::Tensor& mean) {
  two_phase_->finish(owners, mean);
}

const at::Tensor& CodedParameter::damaged() const {
  return two_phase_ ? two_phase_->damaged() : codec_->damaged();
}

compress::CompressedTensorState CodedParameter::state() const {
  if (label_.empty()) {  // no step has used it since it was loaded
    compress::CompressedTensorState state = loaded_;
    state.elements = shape_.elements;
    add_residual(state);
    return state;
  }
  compress::CompressedTensorState state{shape_.elements, {}, label_, {}, {}};
  add_residual(state);
  if (two_phase_)
    state.two_phase = two_phase_->save();
  else
    state.codec = codec_->save();
  return state;
}

void CodedParameter::add_residual(compress::CompressedTensorState& to) const {
  if (!residual_.defined()) return;
  const at::Tensor host = residual_.cpu();
  const auto* first = host.const_data_ptr<float>();
  to.residual.assign(first, first + host.numel());
  const auto is_zero = [](float x) { return x == 0; };
  if (!keeps_ && std::all_of(to.residual.begin(), to.residual.end(), is_zero))
    to.residual.clear();  // it was sent
}

}  // namespace linerate::torch_codecs
