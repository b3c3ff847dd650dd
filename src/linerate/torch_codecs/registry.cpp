// Makes codecs over tensors by a compressor's name and options. The compressor itself is that of
// linerate/compress: rounds, phases and settings stand there once. Only codec() differs: it makes
// the same codec template with TensorOps in place of HostOps.
//
// A program's own compressor has a codec for memory of the host only. So it is refused here, with
// the list of those that have one over tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {

std::unique_ptr<const compress::Compressor> over_tensors(const doc::Component& compressor,
                                                         at::Device device) {
  auto made = compress::make_built_in(
      compressor, [device](const compress::BuiltInMethod& method, const compress::Shape& shape,
                           bool travels_dense) {
        return compress::made_of<TensorOps>({method.rounds, shape, device, travels_dense},
                                            method.choice_of(travels_dense));
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
