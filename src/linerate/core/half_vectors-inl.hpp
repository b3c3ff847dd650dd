// Vectors of f16 (Half) and bf16 (Brain) as vectors of f32 and back, rounded to nearest even, a NaN
// kept. For files that Highway compiles once per instruction set: included by them alone, behind
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

struct Half {
  template <class D>  // D: f32 vector; reads as many 16-bit elements
  static auto widen(D d, const std::uint16_t* from) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  template <class D, class V>
  static void narrow(D, V v, std::uint16_t* to) {
    const hn::Rebind<hwy::float16_t, D> dh;
    hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(to));
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

}  // namespace linerate::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
