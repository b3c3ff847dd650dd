// Makes codecs over tensors by a compressor's name and options. The compressor itself is that of
// linerate/compress: rounds, phases and settings stand there once. Only codec() differs: it makes
// the same codec template with TensorOps in place of HostOps.
//
// A program's own compressor has a codec for memory of the host only. So it is refused here, with
// the list of those that have one over tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "linerate/compress/dense_below.hpp"
#include "linerate/compress/method/make_codec.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {
namespace {

/// Null for a program's own compressor, whose codec works on memory of the host.
const compress::BuiltIn* find_built_in(const compress::Compressor& compressor) {
  return dynamic_cast<const compress::BuiltIn*>(&compressor.of_chunks());
}

const compress::BuiltIn& built_in(const compress::Compressor& compressor, std::string_view name) {
  if (const compress::BuiltIn* found = find_built_in(compressor)) return *found;
  throw UsageError(
      fmt::format("compressor {} has no implementation over tensors yet; those that "
                  "have one: {}",
                  name, fmt::join(compress::built_in_compressors(), ", ")));
}

Making making_of(const doc::Component& compressor, const compress::Shape& shape,
                 at::Device device) {
  return {compress::make_compressor(compressor), shape, device};
}

/// A compressor whose codecs are those over tensors. All else is asked of the compressor of
/// linerate/compress. With dense_below= chunks have a compressor of their own, without that option,
/// because chunks are coded however small they are.
class OverTensors : public compress::Compressor {
 public:
  OverTensors(const doc::Component& component, at::Device device)
      : component_(component), device_(device), inner_(compress::make_compressor(component)) {
    built_in(*inner_, component.name);
    if (component.find(compress::kDenseBelow) == nullptr) return;
    of_chunks_ = std::make_unique<OverTensors>(compress::without_dense_below(component), device);
  }

  compress::Phases phases() const override { return inner_->phases(); }
  std::vector<compress::Round> rounds(const compress::Shape& shape) const override {
    return inner_->rounds(shape);
  }
  std::vector<compress::Round> rounds(const compress::Shape& shape, int phase) const override {
    return inner_->rounds(shape, phase);
  }
  std::unique_ptr<compress::Codec> codec(const compress::Shape& shape) const override {
    return make_tensor_codec(component_, shape, device_);
  }
  compress::Residual residual() const override { return inner_->residual(); }
  compress::Momentum momentum() const override { return inner_->momentum(); }
  std::unique_ptr<compress::Codec> of_dense(const compress::Shape& shape) const override {
    return make_dense_tensor_codec(component_, shape, device_);
  }
  bool is_two_phase() const override { return inner_->is_two_phase(); }
  /// Made without the options that an owner of means does not have, which are onebit-adam's. beta=0
  /// leaves no momentum.
  std::unique_ptr<const compress::Compressor> of_means() const override {
    if (!inner_->of_means()) return nullptr;
    return std::make_unique<OverTensors>(doc::Component{component_.name, {{"beta", "0"}}}, device_);
  }
  std::int64_t remembered_bytes(const compress::Shape& shape) const override {
    return inner_->remembered_bytes(shape);
  }
  double products(const compress::Shape& shape) const override { return inner_->products(shape); }
  bool is_unbiased() const override { return inner_->is_unbiased(); }
  const compress::Compressor& of_chunks() const override {
    return of_chunks_ ? of_chunks_->of_chunks() : *this;
  }

 private:
  doc::Component component_;
  at::Device device_;
  std::unique_ptr<const compress::Compressor> inner_;
  std::unique_ptr<OverTensors> of_chunks_;  // null: itself
};

}  // namespace

std::unique_ptr<TensorCodec> make_tensor_codec(const doc::Component& compressor,
                                               const compress::Shape& shape, at::Device device) {
  const Making making = making_of(compressor, shape, device);
  return compress::make_codec<TensorOps>(
      making, built_in(*making.compressor, compressor.name).choice(shape));
}

std::unique_ptr<TensorCodec> make_dense_tensor_codec(const doc::Component& compressor,
                                                     const compress::Shape& shape,
                                                     at::Device device) {
  Making making = making_of(compressor, shape, device);
  making.travels_dense = true;
  const auto choice = built_in(*making.compressor, compressor.name).dense_choice();
  if (!choice) return nullptr;
  return compress::make_codec<TensorOps>(making, *choice);
}

std::unique_ptr<TensorCodec> as_tensor_codec(std::unique_ptr<compress::Codec> codec) {
  auto* const over_tensors = dynamic_cast<TensorCodec*>(codec.get());
  LINERATE_CHECK(!codec || over_tensors, "a codec that is none over tensors");
  static_cast<void>(codec.release());
  return std::unique_ptr<TensorCodec>(over_tensors);
}

std::unique_ptr<const compress::Compressor> over_tensors(const doc::Component& compressor,
                                                         at::Device device) {
  return std::make_unique<OverTensors>(compressor, device);
}

}  // namespace linerate::torch_codecs
