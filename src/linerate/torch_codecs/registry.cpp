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
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {
namespace {

/// Null for a program's own compressor, whose codec works on memory of the host.
const compress::BuiltIn* find_built_in(const compress::Compressor& compressor) {
  return dynamic_cast<const compress::BuiltIn*>(&compressor.of_chunks());
}

/// A compressor whose codecs are those over tensors. The codecs keep what they are made of alive.
class OverTensors : public compress::OverCompressor {
 public:
  OverTensors(std::shared_ptr<const compress::Compressor> compressor, at::Device device)
      : OverCompressor(std::move(compressor)), device_(device) {
    const compress::Compressor& of_chunks = inner()->of_chunks();
    if (&of_chunks != inner().get())  // with dense_below=
      of_chunks_ = std::make_unique<OverTensors>(
          std::shared_ptr<const compress::Compressor>(inner(), &of_chunks), device);
  }

  std::unique_ptr<compress::Codec> codec(const compress::Shape& shape) const override {
    return compress::made_of<TensorOps>({inner(), shape, device_},
                                        find_built_in(*inner())->method().choice);
  }
  std::unique_ptr<compress::Codec> of_dense(const compress::Shape& shape) const override {
    const auto& choice = find_built_in(*inner())->method().of_dense;
    if (!choice) return nullptr;
    return compress::made_of<TensorOps>({inner(), shape, device_, true}, *choice);
  }
  std::unique_ptr<const compress::Compressor> of_means() const override {
    std::shared_ptr<const compress::Compressor> means = inner()->of_means();
    return means ? std::make_unique<OverTensors>(std::move(means), device_) : nullptr;
  }
  const compress::Compressor& of_chunks() const override {
    return of_chunks_ ? *of_chunks_ : *this;
  }

 private:
  at::Device device_;
  std::unique_ptr<OverTensors> of_chunks_;  // null: itself
};

}  // namespace

std::unique_ptr<const compress::Compressor> over_tensors(const doc::Component& compressor,
                                                         at::Device device) {
  std::shared_ptr<const compress::Compressor> made = compress::make_compressor(compressor);
  if (find_built_in(*made) == nullptr)
    throw UsageError(
        fmt::format("compressor {} has no implementation over tensors yet; those that "
                    "have one: {}",
                    compressor.name, fmt::join(compress::built_in_compressors(), ", ")));
  return std::make_unique<OverTensors>(std::move(made), device);
}

std::unique_ptr<TensorCodec> make_tensor_codec(const doc::Component& compressor,
                                               const compress::Shape& shape, at::Device device) {
  std::unique_ptr<compress::Codec> codec = over_tensors(compressor, device)->codec(shape);
  return std::unique_ptr<TensorCodec>(static_cast<TensorCodec*>(codec.release()));
}

}  // namespace linerate::torch_codecs
