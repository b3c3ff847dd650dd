#include "linerate/torch_adapter/model_watch.hpp"

#include <algorithm>

namespace linerate::torch_adapter {

void ModelWatch::Seen::take() {
  data = tensor.const_data_ptr();
  type = tensor.scalar_type();
  device = tensor.device();
  sizes = tensor.sizes().vec();
  strides = tensor.strides().vec();
  requires_grad = tensor.requires_grad();
}

bool ModelWatch::Seen::reshaped() const {
  return type != tensor.scalar_type() || device != tensor.device() || sizes != tensor.sizes() ||
         strides != tensor.strides() || (tensor.requires_grad() && !requires_grad);
}

ModelWatch::ModelWatch(const NamedTensors& parameters, const NamedTensors& buffers) {
  for (const auto* list : {&parameters, &buffers})
    for (const auto& [name, tensor] : *list) seen_.emplace_back().tensor = tensor;
  accept();
}

bool ModelWatch::changed() const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [](const Seen& s) { return s.moved() || s.reshaped(); });
}

bool ModelWatch::reshaped() const {
  return std::any_of(seen_.begin(), seen_.end(), [](const Seen& s) { return s.reshaped(); });
}

void ModelWatch::accept() {
  for (Seen& s : seen_) s.take();
}

}  // namespace linerate::torch_adapter
