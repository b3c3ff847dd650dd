#include "linerate/compress/dense.hpp"

#include <fmt/format.h>

#include <cstring>

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

class DenseCodec : public Codec {
 public:
  explicit DenseCodec(const Shape& shape) : n_(to_index(shape.elements)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    for (std::size_t i = 0; i < n_; ++i) {
      const float kept = input.residual.empty() ? 0 : input.residual[i];
      write_at(payload, 4 * i, input.gradient[i] + kept);
    }
    std::fill(input.residual.begin(), input.residual.end(), 0.0f);
    return 4 * n_;
  }
  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_gathered(arrived, 4 * n_, "dense");
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] += read_at<float>(arrived.payloads[p], 4 * (first + i));
    });
  }

 private:
  std::size_t n_;
};

}  // namespace

std::unique_ptr<Codec> dense_codec(const Shape& shape) {
  return std::make_unique<DenseCodec>(shape);
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
