// Payloads of entries (payload.hpp), for every back end: how many there are of a tensor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

struct EntryFormat {
  std::string_view method;
  double density = 1;
  /// Entries of a tensor of so many elements; the most there can be if a payload is_counted.
  std::int64_t (*most)(double density, std::int64_t elements);
  bool is_counted = false;  // a payload begins with their number
  bool may_be_all = false;  // kAllValues may be in its place: then all values follow

  std::int64_t most_of(std::int64_t elements) const { return most(density, elements); }
};

/// Values as they are: used in place of another format if compression does not pay. Payloads are
/// gathered or summed.
struct DenseFormat {};

// Signed powers of two: what natural sends.

/// Both are padded with zeros to 4 bytes.
enum class PowerFormat : std::uint8_t {
  nine_bits,   // groups of kernel/kernels.hpp
  eight_bits,  // u32 exponent of code 127, as f32 has it, then a byte an element
};
std::int64_t bytes_of(PowerFormat format, std::int64_t n);

// Values on an even grid for each bucket. Methods differ in the choice of a bucket's grid, and in
// the numbers that describe it in the payload.

/// The numbers of a bucket that are sent before the codes: one, or two.
using BucketHead = std::array<float, 2>;
enum class HeadRule : std::uint8_t {
  norm,       // the 2-norm, top times the unit
  ends,       // the least value, the unit
  deviation,  // the largest magnitude, clipped at so many standard deviations; the unit
};

/// Payload: `head_size` f32 a bucket, then codes of `bits` bits, padded with zeros to 4 bytes.
struct GridFormat {
  std::string method;  // for messages
  HeadRule rule = HeadRule::norm;
  int bits = 8;  // 1, 2, 4 or 8
  int top = 0;   // the largest code
  bool is_signed = false;
  bool is_stochastic = false;
  /// Code -1 travels as 10 and 11 is none, in place of two's complement.
  bool ternary = false;
  std::size_t head_size = 1;
  std::size_t bucket = 0;  // a power of two, 32 to 4096; 0: the whole tensor
  bool unbiased = false;
  Residual residual = Residual::none;
  /// Writes the head of each bucket of v, one after the other.
  void (*heads_of)(std::span<const float> v, const GridFormat&, BucketHead* heads) = nullptr;
  double clip = 0;  // in standard deviations

  /// The grid that a head describes. For numbers that no bucket has, its unit is below zero or not
  /// finite.
  Grid grid_of(const BucketHead& head) const {
    if (rule == HeadRule::ends) return {head[0], head[1]};
    return {0, static_cast<double>(head[0]) / top};
  }
};

/// The bytes before the codes of a tensor of n elements.
std::int64_t heads_bytes(const GridFormat& format, std::int64_t n);
/// All of its payload.
std::int64_t bytes_of(const GridFormat& format, std::int64_t n);

/// The f32 at or above `value`, at most the largest. A unit that is rounded down would leave the
/// largest value of a bucket beyond the last point of its grid.
float round_up(double value);

// A bit an element and one or two levels a block: what efsignsgd, onebit and onebit-adam send.

/// How blocks of `block` elements, a multiple of 32, are sent; 0: one block, the whole tensor.
struct SignFormat {
  std::string method;  // for messages
  LevelRule rule = LevelRule::mean_magnitude;
  std::int64_t block = 0;
};
SignFormat onebit_adam_format();

/// Levels sent of a block.
constexpr std::int64_t levels_per_block(LevelRule rule) {
  return rule == LevelRule::mean_of_class ? 2 : 1;
}
/// f32 levels of all blocks, then the signs' words: 4 or 8 bytes a block and 4 ceil(n / 32).
std::int64_t bytes_of(const SignFormat& format, std::int64_t n);

// The two 16-bit floats as a compressor: fp16.cpp and bf16.cpp are its lines.

/// Payload: a 16-bit float an element, 2n bytes, of v / ranks. v is divided before the cast,
/// because a sum of undivided gradients would overflow. Ranks add the payloads (all-reduce), and
/// the sum is the mean. Without a residual, v beyond the range of the type becomes an infinity,
/// which the mean shows. With a residual v is cut off at half_limit(), and the rest is sent in
/// later steps. Under a loss scale the codec then says that it overflowed.
std::unique_ptr<const Compressor> half_precision(DType half);

/// The largest v, on so many ranks, that the type holds. v / ranks, each partial sum of up to
/// `ranks` of them and the mean are rounded by 2^-11 at most. With two ranks none reaches infinity.
/// Example: 8 ranks in f16 may add 8 * 2^-11 of rounding, so the limit is 65,504 less .4 %, about
/// 65,248.
constexpr float half_limit(DType half, int ranks) {
  if (half != DType::f16) return 0x1p127f;
  const float rounded = ranks <= 2 ? 0 : static_cast<float>(ranks) * 0x1p-11f;
  return 65504 * (rounded < 0.5f ? 1 - rounded : 0.5f);
}

template <class Ops>
class HalfCodec final : public Ops::Codec {
 public:
  HalfCodec(const typename Ops::Making& making, DType half) : Ops::Codec(making), half_(half) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    scale_ = tensors.loss_scale.value_or(1);
    const auto ranks = static_cast<float>(tensors.ranks);
    is_beyond_ = typename Ops::Flag();
    if (!tensors.keeps_residual()) return Ops::narrow(tensors, half_, scale_ / ranks);
    const float limit = half_limit(half_, tensors.ranks) / scale_;
    const auto is_beyond =
        Ops::narrow_and_keep(tensors, half_, {scale_ / ranks, ranks / scale_, limit});
    if (tensors.loss_scale) is_beyond_ = is_beyond;
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::widen(tensors, half_, 1 / scale_);
  }
  typename Ops::Flag is_beyond() const override { return is_beyond_; }

 private:
  DType half_;
  float scale_ = 1;  // of the step at hand
  typename Ops::Flag is_beyond_ = {};
};

// The compressors that send values on an even grid a bucket.

std::unique_ptr<const Compressor> grid_codes(const GridFormat& format);

// The compressor of a format of signs: what efsignsgd and onebit are.

/// One round of the format, with a residual.
std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format);

}  // namespace linerate::compress
