#include "linerate/compress/method/built_in.hpp"

#include <utility>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {

std::unique_ptr<const Compressor> built_in(BuiltInMethod method) {
  return std::make_unique<BuiltIn>(
      std::move(method), [](const BuiltInMethod& own, const Shape& shape, bool travels_dense) {
        return made_of<HostOps>({shape}, own.choice_of(travels_dense));
      });
}

std::function<std::vector<Round>(const Shape&, int)> one_round(
    std::function<Round(std::int64_t elements)> round) {
  return [round = std::move(round)](const Shape& shape, int) {
    return one_round_if_smaller(shape, round(shape.elements));
  };
}

/// dense_below: a dense tensor would need an all-reduce of its own, because these sum 16 bits.
std::unique_ptr<const Compressor> half_precision(DType half) {
  return built_in({.rounds = one_round([half](std::int64_t n) {
                     return Round{Combine::sum, half, 2 * n};
                   }),
                   .choice = CodecWith<HalfCodec, DType>{{half}},
                   .residual = Residual::optional,
                   .dense_below = 0});
}

std::unique_ptr<const Compressor> grid_codes(const GridFormat& format) {
  return built_in(
      {.rounds = one_round([format](std::int64_t n) { return gathered(bytes_of(format, n)); }),
       .choice = format,
       .residual = format.residual,
       .is_unbiased = format.unbiased});
}

std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format) {
  return built_in(
      {.rounds = one_round([format](std::int64_t n) { return gathered(bytes_of(format, n)); }),
       .choice = format});
}

}  // namespace linerate::compress
