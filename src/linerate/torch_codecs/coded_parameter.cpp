#include "linerate/torch_codecs/coded_parameter.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/method/sign_codecs.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_codecs {
CodedParameter::CodedParameter(std::string name, const compress::Shape& shape,
                               compress::CompressedTensorState saved, at::Device device)
    : ParameterCodecs(std::move(name), shape, std::move(saved)), device_(device) {}

at::Tensor CodedParameter::zeros() const {
  return at::zeros({shape().elements}, at::TensorOptions().device(device_).dtype(at::kFloat));
}

/// The state that goes on with another method is found on the host, by compress::CodedTensor. So
/// the rules of that stand once. A change of the method is rare, and its copies may wait.
void CodedParameter::use(const compress::TensorMethod& method) {
  if (uses(method)) return;
  const compress::CompressedTensorState before = state();
  const auto making = [device = device_](const compress::Shape& shape) {
    return Making{shape, device};
  };
  make_codecs(method, compress::two_phase_making<TensorOps>(making));
  residual_.reset();
  next_.reset();
  was_sent_ = false;
  if (!before.residual.empty() || !before.method.empty()) {
    compress::CodedTensor host(name(), shape(), before);
    host.use(method);
    const compress::CompressedTensorState now = host.state();
    set_residual(now.residual);
    load_codecs(now);
  }
  if (keeps_ && !residual_.defined()) residual_ = zeros();
}

void CodedParameter::live_in(const at::Tensor& residual, const at::Tensor& next) {
  if (!keeps_) return;
  residual.copy_(residual_);
  residual_ = residual;
  next_ = next;
}

void CodedParameter::set_residual(const std::vector<float>& from) {
  if (from.empty()) return;
  residual_ = zeros();
  residual_.copy_(at::from_blob(const_cast<float*>(from.data()), {shape().elements}, at::kFloat));
}

/// Only the first dense step after coded ones reads the state on the host, and waits for it.
at::Tensor CodedParameter::begin_dense(int rank) {
  if (std::exchange(may_owe_elsewhere_, false)) {
    const std::vector<float> owed = forget_codecs(state(), rank);
    residual_.reset();
    set_residual(owed);
    next_.reset();
    was_sent_ = false;
  }
  sends_residual_ = residual_.defined();
  return residual_;
}

void CodedParameter::begin_step(std::uint64_t seed, std::int64_t step, int rank,
                                const at::Tensor& gradient) {
  const compress::KeepDenormals keep;
  begin_codecs(seed, step, rank);
  sends_residual_ = !keeps_ && residual_.defined();
  if (sends_residual_) gradient.add_(residual_);
}

void CodedParameter::add_kept(std::vector<KeptTensor*>& to) const {
  if (!is_touched_) return;
  for (compress::KeptField* const one : kept())
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
  keep_codecs();
  return sent;
}

void CodedParameter::forget_sent(bool was_none) {
  if (std::exchange(was_sent_, false) && !was_none) residual_.reset();
}

compress::CompressedTensorState CodedParameter::state() const {
  compress::CompressedTensorState state = state_of_codecs();
  if (!residual_.defined()) return state;
  const at::Tensor host = residual_.cpu();
  const auto* first = host.const_data_ptr<float>();
  state.residual.assign(first, first + host.numel());
  const auto is_zero = [](float x) { return x == 0; };
  if (!keeps_ && std::all_of(state.residual.begin(), state.residual.end(), is_zero))
    state.residual.clear();  // it was sent
  return state;
}

}  // namespace linerate::torch_codecs
