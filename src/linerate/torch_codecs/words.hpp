// The integer arithmetic of payloads with operators of tensors. It has bits of floats, packed
// codes, and compress's random numbers (core/rng.hpp, compress/rounding_bits.hpp), to the bit.
// Tensors have signed integers only. Products and sums wrap around alike, and only shifts to the
// right and conversions to wider types need care.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

/// Shifts i32 or i64 to the right as unsigned numbers. Example for i32: -1 by 28 is 15.
at::Tensor shifted_right(const at::Tensor& x, int by);
/// Floats' bits as i32, and back.
at::Tensor bits_of(const at::Tensor& floats);
at::Tensor floats_of(const at::Tensor& bits);
/// The unsigned values of u32 in i32 memory, as i64.
at::Tensor unsigned_of(const at::Tensor& words);
/// kernel/magnitude.hpp's, i32.
at::Tensor magnitude_bits(const at::Tensor& floats);

/// A contiguous tensor's memory: u8.
at::Tensor bytes_of(const at::Tensor& x);
/// kernel/pack_codes.hpp's: u8 codes of 1, 2, 4 or 8 bits (upper bits are 0) to ceil(n bits / 8)
/// bytes, and back.
at::Tensor pack_codes(const at::Tensor& codes, int bits);
at::Tensor unpack_codes(const at::Tensor& bytes, std::int64_t n, int bits);

/// random_bits() and random_unit() of keys and counters that are broadcast, i64 and f64.
at::Tensor random_bits(const at::Tensor& key, const at::Tensor& counter);
at::Tensor random_unit(const at::Tensor& key, const at::Tensor& counter);
/// The rounding bits of whole blocks: i32[blocks][kRoundingBlock]. `keys` has random_bits(key,
/// block) of each block.
at::Tensor rounding_blocks(const at::Tensor& keys);

/// compress/payload.hpp's checks of sizes, which the host has without waiting for the device.
void check_gathered(const TensorArrived& arrived, std::int64_t bytes, std::string_view method);
void check_sum(const TensorArrived& arrived, std::int64_t bytes, std::string_view method);

/// f64[rows][columns] to sums[rows], with the 16 lanes of kernel/lanes-inl.hpp and so to the bit.
/// columns are a multiple of 16.
at::Tensor sums_of_16_lanes(const at::Tensor& x);

}  // namespace linerate::torch_codecs
