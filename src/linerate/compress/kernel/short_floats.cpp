// Floats of 16 bits, and powers of two of 9 and 8. Compiled once per instruction set, picked at run
// time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/short_floats.cpp"
#include "linerate/compress/kernel/fixed_lanes-inl.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"
#include "linerate/core/half_vectors-inl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linerate/compress/cast.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {
using linerate::HWY_NAMESPACE::Brain;
using linerate::HWY_NAMESPACE::Half;

template <class Kind>
struct Narrow {
  HWY_INLINE void operator()(const float* in, std::uint16_t* out) const {
    Kind::narrow(kFloats, hn::LoadU(kFloats, in), out);
  }
};
template <class Kind>
struct Widen {
  HWY_INLINE void operator()(const std::uint16_t* in, float* out) const {
    hn::StoreU(Kind::widen(kFloats, in), kFloats, out);
  }
};

/// Gradients times `share`, in 16 bits.
template <class Kind>
struct Scale {
  Floats share;
  HWY_INLINE void operator()(const float* gradient, std::uint16_t* out) const {
    Kind::narrow(kFloats, hn::Mul(hn::LoadU(kFloats, gradient), share), out);
  }
};

/// The same with error feedback. The sent number is read back from the 16 bits, so that the
/// residual has the rounding too. Example in f16 with 4 ranks: v = 1.0002 is sent as 0.25, which
/// stands for 1, and .0002 stays.
template <class Kind>
class ScaleAndKeep {
 public:
  explicit ScaleAndKeep(const HalfScale& scale)
      : limit_(hn::Set(kFloats, scale.limit)),
        share_(hn::Set(kFloats, scale.share)),
        back_(hn::Set(kFloats, scale.back)) {}
  HWY_INLINE void operator()(const float* gradient, float* residual, std::uint16_t* out) {
    const auto v = hn::Add(hn::LoadU(kFloats, gradient), hn::LoadU(kFloats, residual));
    const auto cut = hn::Max(hn::Neg(limit_), hn::Min(limit_, v));
    Kind::narrow(kFloats, hn::Mul(cut, share_), out);
    const auto sent = hn::Mul(Kind::widen(kFloats, out), back_);
    hn::StoreU(hn::Sub(v, sent), kFloats, residual);
    largest_ = hn::Max(largest_, hn::Abs(v));
  }
  HWY_INLINE float largest() const { return hn::GetLane(hn::MaxOfLanes(kFloats, largest_)); }

 private:
  Floats limit_, share_, back_, largest_ = hn::Zero(kFloats);
};

void cast_all(const void* in, DType from, void* out, DType to, std::size_t n) {
  const auto* const wide = static_cast<const float*>(in);
  const auto* const halves = static_cast<const std::uint16_t*>(in);
  if (to == DType::bf16)
    in_steps<kLanes>(n, Narrow<Brain>(), wide, static_cast<std::uint16_t*>(out));
  if (to == DType::f16) in_steps<kLanes>(n, Narrow<Half>(), wide, static_cast<std::uint16_t*>(out));
  if (from == DType::bf16) in_steps<kLanes>(n, Widen<Brain>(), halves, static_cast<float*>(out));
  if (from == DType::f16) in_steps<kLanes>(n, Widen<Half>(), halves, static_cast<float*>(out));
}

void narrow_scaled(std::span<const float> gradient, float share, DType half, std::byte* out) {
  const auto work = [&](auto scale) HWY_ATTR {
    in_steps<kLanes>(gradient.size(), scale, gradient.data(),
                     reinterpret_cast<std::uint16_t*>(out));
  };
  const Floats all = hn::Set(kFloats, share);
  half == DType::bf16 ? work(Scale<Brain>{all}) : work(Scale<Half>{all});
}

float narrow_and_keep(std::span<const float> gradient, std::span<float> residual,
                      const HalfScale& scale, DType half, std::byte* out) {
  const auto work = [&](auto keep) HWY_ATTR {
    in_steps<kLanes>(gradient.size(), keep, gradient.data(), residual.data(),
                     reinterpret_cast<std::uint16_t*>(out));
    return keep.largest();
  };
  return half == DType::bf16 ? work(ScaleAndKeep<Brain>(scale)) : work(ScaleAndKeep<Half>(scale));
}

constexpr hn::Rebind<std::uint8_t, decltype(kFloats)> kBytes;

HWY_INLINE Words word(std::uint32_t value) { return hn::Set(kWords, value); }
HWY_INLINE Floats power(Words exponent, Words sign) {
  return hn::BitCast(kFloats, hn::Or(hn::ShiftLeft<23>(exponent), sign));
}

/// Exponents, rounded at random to a neighbour, so that the mean is the value. The lower 23 bits of
/// a magnitude are its distance from its power of two, as a part of that power. So they are the
/// probability of the next exponent. Adding 23 random bits carries into the exponent with just this
/// probability.
///
/// Example: 1.25 has exponent 127 and lower bits of 1/4. The sum carries for a quarter of the
/// random numbers. So 2 is sent in 1 of 4 cases and 1 in 3 of 4, and the mean is 1.25. Denormals
/// need no case of their own: they become 0 or 2^-126. At the top there is no next exponent.
HWY_INLINE Words round_up_at_random(Words magnitude, Words random) {
  return hn::Min(hn::ShiftRight<23>(hn::Add(magnitude, random)), word(254));
}

/// Rounds a magnitude below 2^(least - 127) at random. It goes to that power or to `least` - 1,
/// which stands for zero. The mantissa with its leading 1, shifted down to the same scale, is the
/// probability. Example: a value of 3/8 of the least power goes to that power in 3 of 8 cases.
HWY_INLINE Words round_at_the_bottom(Words magnitude, Words random, Words least) {
  const Words exponent = hn::ShiftRight<23>(magnitude);
  const Words mantissa = hn::And(magnitude, word(0x7fffff));
  const auto is_normal = hn::Gt(exponent, word(0));
  const Words whole = hn::IfThenElse(is_normal, hn::Or(mantissa, word(0x800000)), mantissa);
  const Words down = hn::Sub(least, hn::Max(exponent, word(1)));
  const Words part = hn::Shr(whole, hn::Min(down, word(31)));
  return hn::Add(hn::Sub(least, word(1)), hn::ShiftRight<23>(hn::Add(part, random)));
}

HWY_INLINE Words magnitude_of(Floats v) {
  return hn::And(hn::BitCast(kWords, v), word(0x7fffffff));
}
HWY_INLINE Words sign_of(Floats v) { return hn::And(hn::BitCast(kWords, v), word(0x80000000)); }

HWY_INLINE Words load_bytes(const std::byte* from) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(from);
  return hn::PromoteTo(kWords, hn::LoadU(kBytes, bytes));
}
HWY_INLINE void store_bytes(Words codes, std::byte* to) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(to);
  hn::StoreU(hn::DemoteTo(kBytes, hn::BitCast(kInts, codes)), kBytes, bytes);
}

/// One group of 32 elements after the other: 36 bytes each.
struct ToGroups {
  RoundingBits bits;
  std::byte* out;

  HWY_INLINE void operator()(const float* gradient, auto*... residual) {
    std::uint32_t signs = 0;
    for (std::size_t i = 0; i < 32; i += kLanes) {
      Floats v = hn::LoadU(kFloats, gradient + i);
      ((v = hn::Add(v, hn::LoadU(kFloats, residual + i))), ...);
      const Words exponent = round_up_at_random(magnitude_of(v), hn::ShiftRight<9>(bits.next()));
      const Words sign = hn::IfThenZeroElse(hn::Eq(exponent, word(0)), sign_of(v));
      store_bytes(exponent, out + 4 + i);
      signs |= bits_of(hn::RebindMask(kFloats, hn::Ne(sign, word(0)))) << i;
      (hn::StoreU(hn::Sub(v, power(exponent, sign)), kFloats, residual + i), ...);
    }
    std::memcpy(out, &signs, 4);
    out += 36;
  }
};

template <class... T>
void to_groups(std::size_t n, ToGroups to, T*... arrays) {
  const std::size_t rest = n % 32, whole = n - rest;
  in_steps<32>(whole, to, arrays...);
  if (rest == 0) return;
  std::byte group[36];
  std::byte* const out = std::exchange(to.out, group);
  in_steps<32>(rest, to, arrays + whole...);
  std::copy_n(group + 4, rest, std::copy_n(group, (rest + 7) / 8, out));
}

void to_powers(std::span<const float> gradient, std::span<float> residual, std::uint64_t key,
               std::uint64_t first, std::byte* out) {
  const ToGroups to{RoundingBits(key, first), out};
  residual.empty() ? to_groups(gradient.size(), to, gradient.data())
                   : to_groups(gradient.size(), to, gradient.data(), residual.data());
}

/// Notes the largest exponent.
struct AddGroups {
  const std::byte* in;
  Words largest = word(0);

  HWY_INLINE void operator()(float* out) {
    std::uint32_t signs;
    std::memcpy(&signs, in, 4);
    for (std::size_t i = 0; i < 32; i += kLanes) {
      const Words exponent = load_bytes(in + 4 + i);
      const Words sign =
          hn::IfThenElseZero(hn::RebindMask(kWords, mask_of_bits(signs >> i)), word(0x80000000));
      hn::StoreU(hn::Add(hn::LoadU(kFloats, out + i), power(exponent, sign)), kFloats, out + i);
      largest = hn::Max(largest, exponent);
    }
    in += 36;
  }
};

bool add_powers(const std::byte* in, std::span<float> out) {
  const std::size_t rest = out.size() % 32, whole = out.size() - rest;
  AddGroups add{in};
  in_steps<32>(whole, add, out.data());
  if (rest > 0) {
    std::byte group[36] = {};
    std::copy_n(add.in, (rest + 7) / 8, group);
    std::copy_n(add.in + (rest + 7) / 8, rest, group + 4);
    add.in = group;
    in_steps<32>(rest, add, out.data() + whole);
  }
  return hn::AllFalse(kWords, hn::Eq(add.largest, word(255)));
}

/// Codes of 7 bits for the exponents below `top`: the least exponent that is sent, and the
/// difference between a code and its exponent.
struct Short {
  explicit Short(std::uint32_t top)
      : top_exponent(word(top)), least(word(top > 126 ? top - 126 : 1)), offset(word(127 - top)) {}
  Words top_exponent, least, offset;  // code = exponent + offset, modulo 2^32
};

class ToShorts {
 public:
  ToShorts(std::uint32_t top, std::uint64_t key, std::uint64_t first)
      : range_(top), bits_(key, first) {}

  HWY_INLINE void operator()(const float* v, std::byte* out) { sent(hn::LoadU(kFloats, v), out); }
  /// v -= what is sent.
  HWY_INLINE void operator()(float* v, std::byte* out) {
    const Floats before = hn::LoadU(kFloats, v);
    hn::StoreU(hn::Sub(before, sent(before, out)), kFloats, v);
  }

 private:
  HWY_INLINE Floats sent(Floats v, std::byte* out) {
    const Words magnitude = magnitude_of(v), random = hn::ShiftRight<9>(bits_.next());
    const auto is_below = hn::Lt(hn::ShiftRight<23>(magnitude), range_.least);
    const Words exponent =
        hn::IfThenElse(is_below, round_at_the_bottom(magnitude, random, range_.least),
                       hn::Min(round_up_at_random(magnitude, random), range_.top_exponent));
    const auto is_zero = hn::Lt(exponent, range_.least);
    const Words sign = hn::IfThenZeroElse(is_zero, sign_of(v));
    const Words code = hn::IfThenZeroElse(is_zero, hn::Add(exponent, range_.offset));
    const Words byte = hn::Or(code, hn::ShiftRight<24>(sign));
    store_bytes(byte, out);
    return power(hn::IfThenZeroElse(is_zero, exponent), sign);
  }

  Short range_;
  RoundingBits bits_;
};

void to_short_powers(std::span<const float> v, std::span<float> residual, std::uint32_t top,
                     std::uint64_t key, std::uint64_t first, std::byte* out) {
  ToShorts to(top, key, first);
  residual.empty() ? in_steps<kLanes>(v.size(), to, v.data(), out)
                   : in_steps<kLanes>(v.size(), to, residual.data(), out);
}

/// Notes lanes whose code stands for no f32.
struct AddShorts {
  Short range;
  Words wrong = word(0);

  HWY_INLINE void operator()(const std::byte* in, float* out) {
    const Words byte = load_bytes(in);
    const Words code = hn::And(byte, word(127));
    const auto is_zero = hn::Eq(code, word(0));
    const Words exponent = hn::IfThenZeroElse(is_zero, hn::Sub(code, range.offset));
    const Words sign = hn::ShiftLeft<24>(hn::And(byte, word(128)));
    hn::StoreU(hn::Add(hn::LoadU(kFloats, out), power(exponent, sign)), kFloats, out);
    // Zero but for code 0 is below the least; what has gone below zero is large.
    const auto is_none = hn::Or(hn::Gt(exponent, word(254)), hn::Eq(exponent, word(0)));
    wrong = hn::Or(wrong, hn::IfThenZeroElse(is_zero, hn::VecFromMask(kWords, is_none)));
  }
};

bool add_short_powers(const std::byte* in, std::uint32_t top, std::span<float> out) {
  AddShorts add{Short(top)};
  in_steps<kLanes>(out.size(), add, in, out.data());
  return hn::AllTrue(kWords, hn::Eq(add.wrong, word(0)));
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(cast_all);
LINERATE_KERNEL(void, narrow_scaled,
                (std::span<const float> gradient, float share, DType half, std::byte* out),
                gradient, share, half, out)
LINERATE_KERNEL(float, narrow_and_keep,
                (std::span<const float> gradient, std::span<float> residual, const HalfScale& scale,
                 DType half, std::byte* out),
                gradient, residual, scale, half, out)
LINERATE_KERNEL(void, to_powers,
                (std::span<const float> gradient, std::span<float> residual, std::uint64_t key,
                 std::uint64_t first, std::byte* out),
                gradient, residual, key, first, out)
LINERATE_KERNEL(bool, add_powers, (const std::byte* in, std::span<float> out), in, out)
LINERATE_KERNEL(void, to_short_powers,
                (std::span<const float> v, std::span<float> residual, std::uint32_t top,
                 std::uint64_t key, std::uint64_t first, std::byte* out),
                v, residual, top, key, first, out)
LINERATE_KERNEL(bool, add_short_powers,
                (const std::byte* in, std::uint32_t top, std::span<float> out), in, top, out)

namespace {
bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }
}  // namespace

bool can_cast(DType from, DType to) {
  return (from == DType::f32 && is_half(to)) || (is_half(from) && to == DType::f32);
}

void cast(const void* in, DType from, void* out, DType to, std::size_t elements) {
  if (!can_cast(from, to))
    throw UsageError(fmt::format("cast: expected f32 to f16 or bf16, or back, found {} to {}",
                                 name_of(from), name_of(to)));
  HWY_DYNAMIC_DISPATCH(cast_all)(in, from, out, to, elements);
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
