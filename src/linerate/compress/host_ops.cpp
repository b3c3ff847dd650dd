// The half-precision codec's functions on the host, and the two places where a compressor's choice
// of a codec becomes a codec of the host.
#include "linerate/compress/host_ops.hpp"

#include <algorithm>

#include "linerate/compress/method/make_codec.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {

std::unique_ptr<Codec> BuiltIn::codec(const Shape& shape) const {
  return make_codec<HostOps>(HostOps::Making{shape}, choice(shape));
}

std::unique_ptr<Codec> BuiltIn::of_dense(const Shape& shape) const {
  const std::optional<CodecChoice> dense = dense_choice();
  return dense ? make_codec<HostOps>(HostOps::Making{shape}, *dense) : nullptr;
}

void HostOps::narrow(const Sending& tensors, DType half, float share) {
  for (auto& [input, payload, sent] : tensors.items) {
    narrow_scaled(input.gradient, share, half, payload.data());
    sent = 2 * input.gradient.size();
  }
}

HostOps::Flag HostOps::narrow_and_keep(const Sending& tensors, DType half, const HalfScale& scale) {
  float largest = 0;
  for (auto& [input, payload, sent] : tensors.items) {
    largest = std::max(largest,
                       narrow_scaled(input.gradient, input.residual, scale, half, payload.data()));
    sent = 2 * input.gradient.size();
  }
  return largest > scale.limit;
}

void HostOps::widen(const Arriving& tensors, DType half, float by) {
  for (const auto& [arrived, mean] : tensors.items) {
    check_sum(arrived, 2 * mean.size(), name_of(half));
    compress::widen(arrived.payloads[0].data(), half, mean);
    if (by == 1) continue;
    for (float& value : mean) value *= by;
  }
}

}  // namespace linerate::compress
