#include "linerate/compress/dense.hpp"

#include <fmt/format.h>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/pass_codecs.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {

std::unique_ptr<Codec> dense_codec(const Shape& shape) {
  return std::make_unique<DenseCodec<HostOps>>(HostOps::Making{shape});
}

std::unique_ptr<Codec> made_codec(const Compressor& compressor, const Shape& shape) {
  std::unique_ptr<Codec> codec = compressor.codec(shape);
  if (!codec)
    throw UsageError(
        fmt::format("codec() of {} elements in {} rows: expected a codec, as rounds() are not "
                    "empty, found none",
                    shape.elements, shape.rows));
  return codec;
}

}  // namespace linerate::compress
