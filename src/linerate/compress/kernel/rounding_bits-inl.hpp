// cast.hpp in vectors. For files that Highway compiles once per instruction set; hence the
// guard that toggles.
#if defined(LINERATE_COMPRESS_ROUNDING_BITS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LINERATE_COMPRESS_ROUNDING_BITS_INL
#undef LINERATE_COMPRESS_ROUNDING_BITS_INL
#else
#define LINERATE_COMPRESS_ROUNDING_BITS_INL
#endif

#include "linerate/compress/cast.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {

/// The bits of elements first, first + 1 ... of one rounding block, a vector at a time.
class RoundingBits {
 public:
  RoundingBits(std::uint64_t key, std::uint64_t first)
      : key_(random_bits(key, first / kRoundingBlock)),
        low_(hn::Set(kWords, static_cast<std::uint32_t>(key_))),
        high_(hn::Set(kWords, static_cast<std::uint32_t>(key_ >> 32))),
        counter_(hn::Iota(kWords, static_cast<std::uint32_t>(first % kRoundingBlock))) {}

  HWY_INLINE Words next() {
    const auto times = [](Words v, std::uint32_t factor)
                           HWY_ATTR { return hn::Mul(v, hn::Set(kWords, factor)); };
    Words x = hn::Add(times(counter_, 0x9e3779b9u), low_);
    x = hn::Add(times(hn::Xor(x, hn::ShiftRight<16>(x)), 0x85ebca6bu), high_);
    x = times(hn::Xor(x, hn::ShiftRight<13>(x)), 0xc2b2ae35u);
    counter_ = hn::Add(counter_, hn::Set(kWords, static_cast<std::uint32_t>(kLanes)));
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }

 private:
  std::uint64_t key_;
  Words low_, high_, counter_;
};

}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
