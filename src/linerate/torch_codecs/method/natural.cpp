// natural over tensors: integers alone, so the same bits (kernel/powers.hpp).
#include "linerate/compress/kernel/powers.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

constexpr std::int64_t kMostExponent = 254;
constexpr std::int64_t kMantissa = 0x7fffff, kLeadingOne = 0x800000;

at::Tensor power_of(const at::Tensor& exponent, const at::Tensor& negative) {
  const at::Tensor bits = at::bitwise_left_shift(exponent, 23);
  return floats_of(at::where(negative, at::bitwise_or(bits, std::int64_t{-0x80000000LL}), bits));
}
/// The number's lower 23 bits are the probability of the next exponent.
at::Tensor rounded_exponent(const at::Tensor& magnitude, const at::Tensor& random) {
  return at::bitwise_right_shift(magnitude + random, 23).clamp_max(kMostExponent);
}

class NineBitTensors : public TensorCodec {
 public:
  using TensorCodec::TensorCodec;

 private:
  static constexpr std::int64_t kGroup = 32;

  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input);
    const at::Tensor random = shifted_right(rounding_bits(input.keys.own, elements(), device()), 9);
    const at::Tensor exponent = rounded_exponent(magnitude_bits(v), random);
    const at::Tensor negative = at::bitwise_and(exponent != 0, bits_of(v) < 0);
    if (input.residual.defined()) keep_residual(input, v - power_of(exponent, negative));
    const std::int64_t whole = elements() / kGroup * kGroup, rest = elements() - whole;
    const at::Tensor signs = negative.to(at::kByte), powers = exponent.to(at::kByte);
    const at::Tensor groups =
        at::cat({pack_codes(signs.narrow(0, 0, whole), 1).view({-1, kGroup / 8}),
                 powers.narrow(0, 0, whole).view({-1, kGroup})},
                1);
    return {
        joined({groups, pack_codes(signs.narrow(0, whole, rest), 1), powers.narrow(0, whole, rest)},
               round_at(0).bytes),
        {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_gathered(arrived, round_at(0).bytes, "natural");
    const std::int64_t whole = elements() / kGroup, rest = elements() - whole * kGroup;
    const std::int64_t group_bytes = kGroup + kGroup / 8, rest_signs = (rest + 7) / 8;
    const auto used = static_cast<std::int64_t>(compress::power_bytes(to_index(elements())));
    average(arrived, mean, [&](std::size_t p) {
      const at::Tensor& payload = arrived.payloads[p];
      const at::Tensor groups = section(payload, 0, whole * group_bytes).view({whole, group_bytes});
      const std::int64_t at_rest = whole * group_bytes;
      const at::Tensor signs =
          at::cat({unpack_codes(groups.narrow(1, 0, kGroup / 8).reshape({-1}), whole * kGroup, 1),
                   unpack_codes(section(payload, at_rest, rest_signs), rest, 1)});
      const at::Tensor powers = at::cat({groups.narrow(1, kGroup / 8, kGroup).reshape({-1}),
                                         section(payload, at_rest + rest_signs, rest)});
      damage_if((powers == 255).any());
      damage_if((payload.narrow(0, used, payload.numel() - used) != 0).any());
      return power_of(powers.to(at::kInt), signs.to(at::kBool));
    });
  }
};

class EightBitTensors : public TensorCodec {
 public:
  using TensorCodec::TensorCodec;

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input), magnitude = magnitude_bits(v);
    const at::Tensor random = shifted_right(rounding_bits(input.keys.own, elements(), device()), 9);
    const at::Tensor top =
        (at::bitwise_right_shift(magnitude.amax(), 23) + 1).clamp_max(kMostExponent);
    const at::Tensor least = (top - 126).clamp_min(1);
    const at::Tensor is_below = at::bitwise_right_shift(magnitude, 23) < least;
    at::Tensor exponent = at::where(is_below, rounded_at_the_bottom(magnitude, random, least),
                                    at::minimum(rounded_exponent(magnitude, random), top));
    const at::Tensor is_zero = exponent < least;
    const at::Tensor negative = at::bitwise_and(is_zero.bitwise_not(), bits_of(v) < 0);
    const at::Tensor code = at::where(is_zero, 0, exponent + (127 - top));
    exponent = at::where(is_zero, 0, exponent);
    if (input.residual.defined()) keep_residual(input, v - power_of(exponent, negative));
    const at::Tensor bytes = at::bitwise_or(code, negative.to(at::kInt) * 128).to(at::kByte);
    return {joined({top.view({1}), bytes}, round_at(0).bytes), {}};
  }

  /// powers.cpp's round_at_the_bottom().
  static at::Tensor rounded_at_the_bottom(const at::Tensor& magnitude, const at::Tensor& random,
                                          const at::Tensor& least) {
    const at::Tensor exponent = at::bitwise_right_shift(magnitude, 23);
    const at::Tensor mantissa = at::bitwise_and(magnitude, kMantissa);
    const at::Tensor whole =
        at::where(exponent > 0, at::bitwise_or(mantissa, kLeadingOne), mantissa);
    const at::Tensor down = (least - exponent.clamp_min(1)).clamp(0, 31);
    const at::Tensor part = at::bitwise_right_shift(whole, down);
    return least - 1 + at::bitwise_right_shift(part + random, 23);
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_gathered(arrived, round_at(0).bytes, "natural");
    average(arrived, mean, [&](std::size_t p) {
      const at::Tensor& payload = arrived.payloads[p];
      const at::Tensor top = section(payload, 0, 4, at::kInt);
      damage_if(at::bitwise_or(top<1, top> kMostExponent).any());
      const std::int64_t used = 4 + elements();
      damage_if((payload.narrow(0, used, payload.numel() - used) != 0).any());
      const at::Tensor bytes = section(payload, 4, elements()).to(at::kInt);
      const at::Tensor code = at::bitwise_and(bytes, 127), is_zero = code == 0;
      const at::Tensor exponent = code - 127 + top;
      const at::Tensor is_none = at::bitwise_or(exponent<1, exponent> kMostExponent);
      damage_if(at::bitwise_and(is_none, is_zero.bitwise_not()).any());
      return power_of(at::where(is_zero, 0, exponent), bytes >= 128);
    });
  }
};

}  // namespace

Made make_natural(const Making& making, doc::OptionReader& options) {
  if (compress::read_natural_bits(options) == 8) return std::make_unique<EightBitTensors>(making);
  return std::make_unique<NineBitTensors>(making);
}

}  // namespace linerate::torch_codecs
