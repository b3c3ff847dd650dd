// Vectors of f16 (Half) and bf16 (Brain) as vectors of f32 and back, rounded to nearest even, a NaN
// kept. For files that Highway compiles once per instruction set: included by them alone, after
// <hwy/highway.h>; hence the guard that toggles.
#if defined(LINERATE_CORE_HALF_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LINERATE_CORE_HALF_VECTORS_INL
#undef LINERATE_CORE_HALF_VECTORS_INL
#else
#define LINERATE_CORE_HALF_VECTORS_INL
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace linerate::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// These processors convert to and from f16 by an instruction. Elsewhere Highway 1.0.3 truncates,
// and takes an infinity for 65536.
#if HWY_ARCH_X86
#define LINERATE_CONVERTS_F16 (HWY_TARGET <= HWY_AVX2)
#else
#define LINERATE_CONVERTS_F16 (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
#endif

struct Half {
  template <class D>  // D: f32 vector; reads as many 16-bit elements
  static auto widen(D d, const std::uint16_t* from) {
#if LINERATE_CONVERTS_F16
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
#else
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    return hn::BitCast(d, widened_bits(du, hn::PromoteTo(du, hn::LoadU(d16, from))));
#endif
  }
  template <class D, class V>
  static void narrow(D, V v, std::uint16_t* to) {
#if LINERATE_CONVERTS_F16
    const hn::Rebind<hwy::float16_t, D> dh;
    hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(to));
#else
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, narrow_bits(v))), d16, to);
#endif
  }

 private:
  /// The f32 of an f16 in the lower half of each lane.
  template <class DU, class V>
  static auto widened_bits(DU du, V half) {
    const hn::Rebind<float, DU> d;
    const auto word = [du](std::uint32_t value) HWY_ATTR { return hn::Set(du, value); };
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, word(0x7fff)));
    const auto bias = word(112u << 23);
    // From 2^-14 on: changes the bias of the exponent. An infinity and a NaN get the highest one.
    const auto normal = hn::Add(magnitude, bias);
    const auto special = hn::Add(normal, bias);
    // Below 2^-14: with the exponent of 2^-14 a denormal has a leading 1 too much.
    const auto least = word(113u << 23);
    const auto denormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(magnitude, least)), hn::BitCast(d, least)));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, word(1u << 23)), denormal, normal);
    const auto any = hn::IfThenElse(hn::Lt(magnitude, word(31u << 23)), finite, special);
    return hn::Or(any, hn::ShiftLeft<16>(hn::And(half, word(0x8000))));
  }
  /// The rounded f16 in the lower half of each lane.
  template <class V>
  static auto narrow_bits(V v) {
    const hn::DFromV<V> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const auto word = [du](std::uint32_t value) HWY_ATTR { return hn::Set(du, value); };
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, word(0x7fffffff));
    // From 2^-14 on: changes the bias of the exponent and rounds to nearest even. It adds half a
    // unit less one, and one more if the bit that stays is odd.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), word(1));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), word(0xfff - (112u << 23))));
    // Below 2^-14 an f16 is a multiple of 2^-24. At 0.5 that is the unit of f32, so adding 0.5
    // rounds to it.
    const auto moved = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
    const auto denormal = hn::Sub(hn::BitCast(du, moved), word(126u << 23));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, word(0x38800000)), denormal, normal);
    const auto nan = hn::Or(word(0x7e00), hn::And(hn::ShiftRight<13>(magnitude), word(0x3ff)));
    const auto large = hn::IfThenElse(hn::Gt(magnitude, word(0x7f800000)), nan, word(0x7c00));
    const auto half = hn::IfThenElse(hn::Lt(magnitude, word(0x477ff000)), finite, large);
    return hn::Or(half, hn::And(hn::ShiftRight<16>(bits), word(0x8000)));
  }
};

struct Brain {
  template <class D>
  static auto widen(D d, const std::uint16_t* from) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
  }
  // Highway's own DemoteTo truncates here; sums of many ranks would drift towards zero.
  template <class D, class V>
  static void narrow(D d, V v, std::uint16_t* to) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto bits = hn::BitCast(du, v);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, odd), hn::Set(du, 0x7fff)));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    const auto result = hn::IfThenElse(is_nan, hn::Or(high, hn::Set(du, 0x40)), rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, result)), d16, to);  // fits: high halves are zero
    static_cast<void>(d);
  }
};

#undef LINERATE_CONVERTS_F16

}  // namespace linerate::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
