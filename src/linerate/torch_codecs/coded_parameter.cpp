#include "linerate/torch_codecs/coded_parameter.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/method/sign_codecs.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_codecs {
namespace {

compress::TwoPhase::Making making_on(at::Device device) {
  return {
      [device](const compress::Shape& shape) {
        return std::make_unique<compress::DenseCodec<TensorOps>>(Making{nullptr, shape, device});
      },
      [device](std::int64_t elements) {
        return std::make_unique<KeptTensor>(
            at::zeros({elements}, at::TensorOptions().device(device).dtype(at::kFloat)));
      }};
}

}  // namespace

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

/// The state that goes on with another method is found on the host, by compress::CodedTensor. So
/// the rules of that stand once. A change of the method is rare, and its copies may wait.
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
    two_phase_ = std::make_unique<compress::TwoPhase>(
        *method.compressor, shape_.elements, method.ranks, method.rank, making_on(device_));
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
}

void CodedParameter::live_in(const at::Tensor& residual, const at::Tensor& next) {
  if (!keeps_) return;
  residual.copy_(residual_);
  residual_ = residual;
  next_ = next;
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

/// Only the first dense step after coded ones reads the state on the host, and waits for it.
at::Tensor CodedParameter::begin_dense(int rank) {
  if (std::exchange(may_owe_elsewhere_, false)) {
    loaded_ = state();
    compress::own_all_owed(loaded_, rank);
    residual_.reset();
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
                                const at::Tensor& gradient) {
  const compress::KeepDenormals keep;
  keys_ = compress::keys_of_step(seed, step, name_, rank);
  is_touched_ = may_owe_elsewhere_ = true;
  sends_residual_ = !keeps_ && residual_.defined();
  if (sends_residual_) gradient.add_(residual_);
}

void CodedParameter::add_kept(std::vector<KeptTensor*>& to) const {
  if (!is_touched_) return;
  if (codec_)
    for (KeptTensor* const one : codec_->kept()) to.push_back(one);
  if (two_phase_)
    for (compress::KeptField* const one : two_phase_->kept())
      if (auto* const tensor = dynamic_cast<KeptTensor*>(one)) to.push_back(tensor);
}

/// On a device the host does not know yet whether the step had something in it. `none` is 1 if not,
/// and then the residual is still owed. So the residual becomes residual * none: zeros if it was
/// sent, else itself. forget_sent() drops the zeros when the host knows.
bool CodedParameter::keep(const at::Tensor& none) {
  const compress::KeepDenormals denormals;
  const bool sent = std::exchange(sends_residual_, false) && residual_.defined();
  if (sent) residual_.mul_(none);
  was_sent_ = was_sent_ || sent;
  if (!std::exchange(is_touched_, false)) return sent;
  two_phase_ ? two_phase_->keep() : codec_->keep();
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
