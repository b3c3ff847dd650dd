// Payloads as tensors of integers: bits of floats, packed codes, and the counter-based random
// numbers of compress (core/rng.hpp, compress/rounding_bits.hpp), to the bit.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

/// Shifted to the right without its sign, of i32 or i64.
at::Tensor shifted_right(const at::Tensor& x, int by);
/// Floats' bits as i32, and back.
at::Tensor bits_of(const at::Tensor& floats);
at::Tensor floats_of(const at::Tensor& bits);
/// kernel/magnitude.hpp's, i32.
at::Tensor magnitude_bits(const at::Tensor& floats);

/// A contiguous tensor's memory: u8.
at::Tensor bytes_of(const at::Tensor& x);
/// One after the other, then zeros up to `bytes`.
at::Tensor joined(const std::vector<at::Tensor>& parts, std::int64_t bytes);
/// A section of a payload, as numbers of `type`; `first` is a multiple of their size.
at::Tensor section(const at::Tensor& payload, std::int64_t first, std::int64_t bytes,
                   at::ScalarType type = at::kByte);

/// kernel/pack_codes.hpp's: u8 codes of 1, 2, 4 or 8 bits (upper bits are 0) to ceil(n bits / 8)
/// bytes, and back.
at::Tensor pack_codes(const at::Tensor& codes, int bits);
at::Tensor unpack_codes(const at::Tensor& bytes, std::int64_t n, int bits);

/// random_bits() and random_unit() of keys and counters that are broadcast, i64 and f64.
at::Tensor random_bits(const at::Tensor& key, const at::Tensor& counter);
at::Tensor random_unit(const at::Tensor& key, const at::Tensor& counter);
/// Those of blocks of kRoundingBlock, by random_bits(key, block) of each: i32[blocks][block].
at::Tensor rounding_blocks(const at::Tensor& keys);

/// v = gradient + residual; the gradient if no residual is kept.
at::Tensor corrected(const TensorInput& input);
/// What is left of v, if a residual is kept.
void keep_residual(const TensorInput& input, const at::Tensor& left);

/// compress/payload.hpp's checks of what the host knows: sizes.
void check_gathered(const TensorArrived& arrived, std::int64_t bytes, std::string_view method);
void check_sum(const TensorArrived& arrived, std::int64_t bytes, std::string_view method);
/// Its average(): `of(p)` is what payload p says, f32 of the mean's elements.
template <class Of>
void average(const TensorArrived& arrived, const at::Tensor& mean, Of&& of) {
  mean.zero_();
  for (std::size_t p = 0; p < arrived.payloads.size(); ++p) mean.add_(of(p));
  if (arrived.ranks > 1) mean.mul_(1.0f / static_cast<float>(arrived.ranks));
}
/// Its read_mean(): a sum of f32 over the ranks as their mean.
at::Tensor read_mean(const TensorArrived& arrived, std::int64_t elements, std::string_view method);

/// Lanes as kernel/lanes-inl.hpp has them: f64[rows][columns] to the same sums[rows], to the bit;
/// columns are a multiple of 16.
at::Tensor sums_of_16_lanes(const at::Tensor& x);

}  // namespace linerate::torch_codecs
