// Picks, counts and adds up magnitudes. Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/magnitudes.cpp"
#include "linerate/compress/kernel/fixed_lanes-inl.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/index.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {

using Ints = hn::Vec<decltype(kInts)>;

/// Counts the elements whose magnitude's bits are at least `least`.
struct Count {
  explicit Count(std::uint32_t from)
      : least(from),
        below(hn::Set(kInts, static_cast<std::int32_t>(from) - 1)),
        magnitude(hn::Set(kInts, static_cast<std::int32_t>(kMagnitude))) {}
  HWY_INLINE auto are_reached(Ints bits) const { return hn::Gt(hn::And(bits, magnitude), below); }
  HWY_INLINE void operator()(const float* v) {
    count += hn::CountTrue(kInts, are_reached(hn::BitCast(kInts, hn::LoadU(kFloats, v))));
  }

  std::uint32_t least;
  Ints below, magnitude;
  std::size_t count = 0;
};

/// Picks from vectors. The picked lanes are moved together in a register, and the whole vector is
/// stored at the end of the list. The next store begins after the picked ones and overwrites the
/// rest. So the list needs room for one more vector. Example with four lanes: of 7, 1, 9 and 2 two
/// reach a threshold of 5. 7, 9 and two leftovers are stored, and the list grows by 2.
///
/// A compress to memory would need no room, but it is microcoded on Zen 4 and three times as slow.
/// There is no branch for a vector without picks: at 1 % it would be guessed wrong in every seventh
/// vector.
struct Pick : Count {
  Pick(std::uint32_t from, float* to_values, std::uint32_t* to_indices)
      : Count(from),
        values(reinterpret_cast<std::int32_t*>(to_values)),
        places(reinterpret_cast<std::int32_t*>(to_indices)) {}
  HWY_INLINE void pick(Ints value, Ints index) {
    const auto keep = are_reached(value);
    hn::StoreU(hn::Compress(value, keep), kInts, values + count);
    hn::StoreU(hn::Compress(index, keep), kInts, places + count);
    count += hn::CountTrue(kInts, keep);
  }
  std::int32_t *values, *places;
};

/// From gradients, or their sums with residuals, which are left there. Element 0 has index `first`.
struct Select : Pick {
  Select(std::uint32_t from, std::size_t first, Selection& out)
      : Pick(from, out.values_end(), out.indices_end()),
        index(hn::Iota(kInts, static_cast<std::int32_t>(first))),
        step(hn::Set(kInts, static_cast<std::int32_t>(kLanes))) {}
  HWY_INLINE void operator()(const float* gradient, auto*... residual) {
    Floats x = hn::LoadU(kFloats, gradient);
    ((x = hn::Add(hn::LoadU(kFloats, residual), x)), ...);
    (hn::StoreU(x, kFloats, residual), ...);
    pick(hn::BitCast(kInts, hn::Add(x, hn::Zero(kFloats))), index);  // -0.0 + 0.0 is +0.0
    index = hn::Add(index, step);
  }
  Ints index, step;
};

/// From a list to itself. A store never overtakes the reads, because the list only shrinks.
struct Filter : Pick {
  using Pick::Pick;
  HWY_INLINE void operator()(const std::int32_t* value, const std::int32_t* place) {
    pick(hn::LoadU(kInts, value), hn::LoadU(kInts, place));
  }
};

/// How many of n elements `work` counts. The zeros that fill up the last step come last, and reach
/// a least magnitude of 0: they are not counted.
template <class Work, class... T>
HWY_INLINE std::size_t counted(std::size_t n, Work work, T*... arrays) {
  in_steps<kLanes>(n, work, arrays...);
  const std::size_t filled = (kLanes - n % kLanes) % kLanes;
  return work.least == 0 ? work.count - filled : work.count;
}

std::size_t count_at_least(std::span<const float> v, std::uint32_t least) {
  return counted(v.size(), Count(least), v.data());
}

std::size_t filter(float* values, std::uint32_t* indices, std::size_t n, std::uint32_t least) {
  const Filter to(least, values, indices);
  const std::int32_t *const from = to.values, *const places = to.places;
  return counted(n, to, from, places);
}

void add_residual(const Input& input, std::size_t first, std::size_t count) {
  if (input.residual.empty()) return;
  const auto add = [](const float* gradient, float* residual) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(kFloats, residual), hn::LoadU(kFloats, gradient)), kFloats,
               residual);
  };
  in_steps<kLanes>(count, add, input.gradient.data() + first, input.residual.data() + first);
}

/// Elements [0, n) of arrays. Element 0 has index `first`.
template <class... T>
void select_from(std::size_t n, std::uint32_t least, std::size_t first, Selection& out,
                 T*... arrays) {
  out.reserve_more(n);
  out.grow(counted(n, Select(least, first, out), arrays...));
}

/// A chunk at a time, as the room for all of v would be twice v.
void select(std::span<const float> v, std::uint32_t least, std::size_t first, Selection& out) {
  for (std::size_t i = 0; i < v.size(); i += kChunk)
    select_from(std::min(kChunk, v.size() - i), least, first + i, out, v.data() + i);
}

/// Goes on adding the residual when the limit is passed, because the caller then chooses in another
/// way, from all of v.
bool add_and_select(const Input& input, std::uint32_t least, std::size_t limit, Selection& out) {
  const std::size_t n = input.gradient.size();
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t count = std::min(kChunk, n - i);
    if (out.size() > limit) {
      HWY_NAMESPACE::add_residual(input, i, n - i);
      break;
    }
    const float* const gradient = input.gradient.data() + i;
    input.residual.empty() ? select_from(count, least, i, out, gradient)
                           : select_from(count, least, i, out, gradient, input.residual.data() + i);
  }
  return out.size() <= limit;
}

// Statistics in doubles, whose vectors are as many lanes of floats, half the width.

constexpr hn::Rebind<float, decltype(kDoubles)> kHalf;

/// Goes over n elements with some vectors of the lanes of two arrays in registers. Several chains
/// of additions hide the latency of one. Four vectors of eight doubles, as AVX-512 has, cover all
/// 32 lanes in one pass. Narrower vectors pass over the elements several times, each time for the
/// lanes that are theirs. take(address, a, b) adds the elements of a vector.
template <std::size_t kVectors, class A, class B, class Take>
void over_lanes(const float* v, std::size_t n, std::array<A, kMomentLanes>& all_a,
                std::array<B, kMomentLanes>& all_b, Take take) {
  const hn::Rebind<A, decltype(kDoubles)> da;
  const hn::Rebind<B, decltype(kDoubles)> db;
  const std::size_t width = hn::Lanes(kDoubles);
  for (std::size_t lane = 0; lane < kMomentLanes; lane += kVectors * width) {
    hn::Vec<decltype(da)> a[kVectors];
    hn::Vec<decltype(db)> b[kVectors];
    for (std::size_t k = 0; k < kVectors; ++k) {
      a[k] = hn::LoadU(da, &all_a[lane + k * width]);
      b[k] = hn::LoadU(db, &all_b[lane + k * width]);
    }
    for (std::size_t i = lane; i < n; i += kMomentLanes)
      for (std::size_t k = 0; k < kVectors; ++k) take(v + i + k * width, a[k], b[k]);
    for (std::size_t k = 0; k < kVectors; ++k) {
      hn::StoreU(a[k], da, &all_a[lane + k * width]);
      hn::StoreU(b[k], db, &all_b[lane + k * width]);
    }
  }
}

/// Sums of n elements, a multiple of 32; returns how many are not zero. Zeros add nothing to the
/// sums: they are counted only if the smallest magnitude is one.
std::uint64_t moments_of(const float* v, std::size_t n, Moments::Lanes& lanes, double& most) {
  auto largest = hn::Set(kDoubles, most), smallest = hn::Set(kDoubles, 1.0);
  over_lanes<4>(v, n, lanes.sum, lanes.squares,
                [&](const float* at, auto& sum, auto& squares) HWY_ATTR {
                  const auto x = hn::Abs(hn::PromoteTo(kDoubles, hn::LoadU(kHalf, at)));
                  sum = hn::Add(sum, x);
                  squares = hn::Add(squares, hn::Mul(x, x));
                  largest = hn::Max(largest, x);
                  smallest = hn::Min(smallest, x);
                });
  most = hn::GetLane(hn::MaxOfLanes(kDoubles, largest));
  return hn::GetLane(hn::MinOfLanes(kDoubles, smallest)) > 0 ? n : count_at_least({v, n}, 1);
}

/// Counts magnitudes whose bits are at least `least`, and sums their excess over it. Example:
/// `least` is 2 and the magnitudes are 5, 1 and 3. The excess is 3, 0 and 1, and the count is 2. A
/// magnitude below becomes `least` itself, so its excess of 0 changes no sum.
void tail_moments_of(const float* v, std::size_t n, std::uint32_t least, Moments::Lanes& lanes,
                     TailFit& tail) {
  const hn::RebindToSigned<decltype(kHalf)> di;
  const auto magnitude = hn::Set(di, static_cast<std::int32_t>(kMagnitude));
  const auto below = hn::Set(di, static_cast<std::int32_t>(least - 1));
  const auto origin = hn::Set(di, static_cast<std::int32_t>(least));
  const auto origin_wide = hn::PromoteTo(kDoubles, hn::BitCast(kHalf, origin));
  auto smallest = magnitude, largest = hn::Zero(di);
  std::size_t count = 0;
  over_lanes<4>(v, n, lanes.sum, lanes.squares,
                [&](const float* at, auto& sum, auto& squares) HWY_ATTR {
                  const auto bits = hn::And(hn::BitCast(di, hn::LoadU(kHalf, at)), magnitude);
                  const auto counted = hn::Gt(bits, below);
                  count += hn::CountTrue(di, counted);
                  largest = hn::Max(largest, bits);
                  smallest = hn::Min(smallest, hn::IfThenElse(counted, bits, magnitude));
                  const auto x = hn::BitCast(kHalf, hn::Max(bits, origin));
                  const auto y = hn::Sub(hn::PromoteTo(kDoubles, x), origin_wide);
                  sum = hn::Add(sum, y);
                  squares = hn::Add(squares, hn::Mul(y, y));
                });
  const auto low = static_cast<std::uint32_t>(hn::GetLane(hn::MinOfLanes(di, smallest))),
             high = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  tail.count += count;
  tail.smallest = std::min(tail.smallest, low);
  tail.largest = std::max(tail.largest, high);
}

/// Multiplies the mantissas of n elements, a multiple of 32, and adds their biased exponents. Zero
/// counts as 1. In double no float is denormal, so every mantissa is in [1, 2).
void logs_of(const float* v, std::size_t n, LogSum::Lanes& lanes) {
  const hn::RebindToUnsigned<decltype(kDoubles)> dw;
  const auto one = hn::Set(kDoubles, 1.0);
  const auto mantissa = hn::Set(dw, 0x000fffffffffffffull);
  over_lanes<2>(v, n, lanes.product, lanes.exponent,
                [&](const float* at, auto& product, auto& exponent) HWY_ATTR {
                  const auto x = hn::Abs(hn::PromoteTo(kDoubles, hn::LoadU(kHalf, at)));
                  const auto is_zero = hn::Eq(x, hn::Zero(kDoubles));
                  const auto bits = hn::BitCast(dw, hn::IfThenElse(is_zero, one, x));
                  exponent = hn::Add(exponent, hn::ShiftRight<52>(bits));
                  const auto m = hn::Or(hn::And(bits, mantissa), hn::BitCast(dw, one));
                  product = hn::Mul(product, hn::BitCast(kDoubles, m));
                });
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

LINERATE_KERNEL(void, add_residual, (const Input& input, std::size_t first, std::size_t count),
                input, first, count)
LINERATE_KERNEL(void, select,
                (std::span<const float> v, std::uint32_t least, std::size_t first, Selection& out),
                v, least, first, out)
LINERATE_KERNEL(bool, add_and_select,
                (const Input& input, std::uint32_t least, std::size_t limit, Selection& out), input,
                least, limit, out)
LINERATE_KERNEL(std::size_t, count_at_least, (std::span<const float> v, std::uint32_t least), v,
                least)
HWY_EXPORT(filter);
HWY_EXPORT(moments_of);
HWY_EXPORT(tail_moments_of);
HWY_EXPORT(logs_of);

void Selection::keep_at_least(std::uint32_t least) {
  size_ = HWY_DYNAMIC_DISPATCH(filter)(values_.get(), indices_.get(), size_, least);
}

void Selection::reserve_more(std::size_t count) {
  constexpr std::size_t kWidestStore = 16;  // elements
  const std::size_t needed = size_ + count + kWidestStore;
  if (needed <= capacity_) return;
  const std::size_t capacity = std::max(needed, capacity_ + capacity_ / 2);
  auto values = std::make_unique_for_overwrite<float[]>(capacity);
  auto indices = std::make_unique_for_overwrite<std::uint32_t[]>(capacity);
  std::copy_n(values_.get(), size_, values.get());
  std::copy_n(indices_.get(), size_, indices.get());
  values_ = std::move(values);
  indices_ = std::move(indices);
  capacity_ = capacity;
}

void Selection::append(float value, std::uint32_t index) {
  reserve_more(1);
  *values_end() = value;
  *indices_end() = index;
  ++size_;
}

// No branch for an element, because a processor could not guess it. Each element is written to the
// end of the list, and the end moves if the element passes. Example: a cut of magnitude 3 with one
// tie, and the values 5, 3, -4 and 3. 5 passes, the first 3 uses the tie, -4 passes, and the last 3
// does not.
void Selection::keep(Cut cut) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    const float value = values_[i];
    const std::uint32_t bits = magnitude_bits(value);
    const std::size_t tied = bits == cut.bits && cut.ties != 0;
    cut.ties -= tied;
    values_[kept] = value;
    indices_[kept] = indices_[i];
    kept += tied | to_index(bits > cut.bits);
  }
  size_ = kept;
}

namespace {

/// Calls kernel(data, elements) with whole steps of all lanes. The last step is filled up with
/// zeros, which no statistic counts.
template <class Kernel>
void in_whole_steps(std::span<const float> part, Kernel kernel) {
  constexpr std::size_t kPart = 128 * kMomentLanes;  // what a kernel reads twice is in the cache
  const std::size_t whole = part.size() / kMomentLanes * kMomentLanes;
  for (std::size_t i = 0; i < whole; i += kPart) kernel(&part[i], std::min(kPart, whole - i));
  if (whole == part.size()) return;
  std::array<float, kMomentLanes> rest{};
  std::copy(part.begin() + static_cast<std::ptrdiff_t>(whole), part.end(), rest.begin());
  kernel(rest.data(), kMomentLanes);
}

/// Adds the lanes in pairs, then pairs of pairs, and so on: one order for all machines.
double folded(std::array<double, kMomentLanes> lanes) {
  for (std::size_t width = kMomentLanes / 2; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

double variance_of(const Moments::Lanes& lanes, std::uint64_t count) {
  return compress::variance_of(folded(lanes.sum), folded(lanes.squares),
                               static_cast<double>(count));
}

}  // namespace

void Moments::add(std::span<const float> part) {
  in_whole_steps(part, [&](const float* data, std::size_t n) {
    count_ += HWY_DYNAMIC_DISPATCH(moments_of)(data, n, lanes_, largest_);
  });
}

double Moments::mean() const {
  return count_ == 0 ? 0 : folded(lanes_.sum) / static_cast<double>(count_);
}

double Moments::variance() const { return variance_of(lanes_, count_); }

double Moments::norm() const { return std::sqrt(folded(lanes_.squares)); }

TailFit tail_of(std::span<const float> v, std::uint32_t least) {
  Moments::Lanes lanes;
  TailFit tail;
  in_whole_steps(v, [&](const float* data, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(tail_moments_of)(data, n, least, lanes, tail);
  });
  if (tail.count == 0) return tail;
  const double to_smallest = static_cast<double>(std::bit_cast<float>(tail.smallest)) -
                             static_cast<double>(std::bit_cast<float>(least));
  tail.mean_excess = folded(lanes.sum) / static_cast<double>(tail.count) - to_smallest;
  tail.variance = variance_of(lanes, tail.count);
  return tail;
}

void LogSum::add(std::span<const float> part) {
  constexpr std::size_t kMost = 512 * kMomentLanes;  // products below 2^512: far from infinity
  for (std::size_t i = 0; i < part.size(); i += kMost)
    in_whole_steps(part.subspan(i, std::min(kMost, part.size() - i)),
                   [&](const float* data, std::size_t n) {
                     HWY_DYNAMIC_DISPATCH(logs_of)(data, n, lanes_);
                     steps_ += n / kMomentLanes;
                     normalise();
                   });
}

void LogSum::normalise() {
  for (std::size_t lane = 0; lane < kMomentLanes; ++lane) {
    int exponent = 0;
    lanes_.product[lane] = 2 * std::frexp(lanes_.product[lane], &exponent);
    lanes_.exponent[lane] += static_cast<std::uint64_t>(exponent - 1);
  }
}

double LogSum::sum() const {
  std::array<double, kMomentLanes> logs{};
  for (std::size_t lane = 0; lane < kMomentLanes; ++lane) {
    const auto exponent = static_cast<std::int64_t>(lanes_.exponent[lane] - 1023 * steps_);
    logs[lane] = std::log(lanes_.product[lane]) + std::numbers::ln2 * static_cast<double>(exponent);
  }
  return folded(logs);
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
