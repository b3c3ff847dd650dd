// Sums over magnitudes. Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/moments.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>
// clang-format on

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "linerate/compress/kernel/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The doubles decide: vectors of floats are as many lanes, half the width.
using Doubles = hn::CappedTag<double, 8>;
using Floats = hn::Rebind<float, Doubles>;
using Integers = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Doubles>;

/// Goes over n elements with the sums of four vectors of lanes in registers. Four chains of
/// additions hide the latency of one. Eight doubles a vector, as AVX-512 has, cover all 32 lanes in
/// one pass. Narrower vectors pass over the elements several times, each time for the lanes that
/// are theirs. take(address, sum, squares) adds the elements of a vector.
template <class Take>
void over_lanes(const float* v, std::size_t n, Moments::Lanes& lanes, Take take) {
  const Doubles dd;
  const std::size_t width = hn::Lanes(dd);
  for (std::size_t lane = 0; lane < kMomentLanes; lane += 4 * width) {
    double* sum = lanes.sum.data() + lane;
    double* squares = lanes.squares.data() + lane;
    hn::Vec<Doubles> s[4], q[4];
    for (std::size_t k = 0; k < 4; ++k) {
      s[k] = hn::LoadU(dd, sum + k * width);
      q[k] = hn::LoadU(dd, squares + k * width);
    }
    for (std::size_t i = lane; i < n; i += kMomentLanes)
      for (std::size_t k = 0; k < 4; ++k) take(v + i + k * width, s[k], q[k]);
    for (std::size_t k = 0; k < 4; ++k) {
      hn::StoreU(s[k], dd, sum + k * width);
      hn::StoreU(q[k], dd, squares + k * width);
    }
  }
}

std::size_t zeros_of(const float* v, std::size_t n) {
  const hn::CappedTag<std::int32_t, 16> di;
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < n; i += hn::Lanes(di)) {
    const auto bits = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(v + i));
    zeros += hn::CountTrue(di, hn::Eq(hn::Add(bits, bits), hn::Zero(di)));  // without its sign
  }
  return zeros;
}

/// Sums of n elements, a multiple of 32; returns how many are not zero. Zeros add nothing to the
/// sums: they are counted only if the smallest magnitude is one.
std::uint64_t moments_of(const float* v, std::size_t n, Moments::Lanes& lanes, double& most) {
  const Doubles dd;
  const Floats d;
  auto largest = hn::Set(dd, most), smallest = hn::Set(dd, 1.0);
  over_lanes(v, n, lanes, [&](const float* at, auto& sum, auto& squares) HWY_ATTR {
    const auto x = hn::Abs(hn::PromoteTo(dd, hn::LoadU(d, at)));
    sum = hn::Add(sum, x);
    squares = hn::Add(squares, hn::Mul(x, x));
    largest = hn::Max(largest, x);
    smallest = hn::Min(smallest, x);
  });
  most = hn::GetLane(hn::MaxOfLanes(dd, largest));
  return hn::GetLane(hn::MinOfLanes(dd, smallest)) > 0 ? n : n - zeros_of(v, n);
}

/// Counts magnitudes whose bits are at least `least`, and sums their excess over it. Example:
/// `least` is 2 and the magnitudes are 5, 1 and 3. The excess is 3, 0 and 1, and the count is 2. A
/// magnitude below becomes `least` itself, so its excess of 0 changes no sum.
void tail_moments_of(const float* v, std::size_t n, std::uint32_t least, Moments::Lanes& lanes,
                     TailFit& tail) {
  const Doubles dd;
  const Floats d;
  const Integers di;
  const auto magnitude = hn::Set(di, static_cast<std::int32_t>(kMagnitude));
  const auto below = hn::Set(di, static_cast<std::int32_t>(least - 1));
  const auto origin = hn::Set(di, static_cast<std::int32_t>(least));
  const auto origin_wide = hn::PromoteTo(dd, hn::BitCast(d, origin));
  auto smallest = magnitude, largest = hn::Zero(di);
  std::size_t count = 0;
  over_lanes(v, n, lanes, [&](const float* at, auto& sum, auto& squares) HWY_ATTR {
    const auto bits = hn::And(hn::BitCast(di, hn::LoadU(d, at)), magnitude);
    const auto counted = hn::Gt(bits, below);
    count += hn::CountTrue(di, counted);
    largest = hn::Max(largest, bits);
    smallest = hn::Min(smallest, hn::IfThenElse(counted, bits, magnitude));
    const auto x = hn::BitCast(d, hn::Max(bits, origin));
    const auto y = hn::Sub(hn::PromoteTo(dd, x), origin_wide);
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
  const Doubles dd;
  const Floats d;
  const Words dw;
  const std::size_t width = hn::Lanes(dd);
  const auto one = hn::Set(dd, 1.0);
  const auto mantissa = hn::Set(dw, 0x000fffffffffffffull);
  const auto take = [&](const float* at, auto& product, auto& exponent) HWY_ATTR {
    const auto x = hn::Abs(hn::PromoteTo(dd, hn::LoadU(d, at)));
    const auto bits = hn::BitCast(dw, hn::IfThenElse(hn::Eq(x, hn::Zero(dd)), one, x));
    exponent = hn::Add(exponent, hn::ShiftRight<52>(bits));
    const auto m = hn::Or(hn::And(bits, mantissa), hn::BitCast(dw, one));
    product = hn::Mul(product, hn::BitCast(dd, m));
  };
  for (std::size_t lane = 0; lane < kMomentLanes; lane += 2 * width) {
    double* products = lanes.product.data() + lane;
    std::uint64_t* exponents = lanes.exponent.data() + lane;
    auto p0 = hn::LoadU(dd, products), p1 = hn::LoadU(dd, products + width);
    auto e0 = hn::LoadU(dw, exponents), e1 = hn::LoadU(dw, exponents + width);
    for (std::size_t i = lane; i < n; i += kMomentLanes) {
      take(v + i, p0, e0);
      take(v + i + width, p1, e1);
    }
    hn::StoreU(p0, dd, products), hn::StoreU(p1, dd, products + width);
    hn::StoreU(e0, dw, exponents), hn::StoreU(e1, dw, exponents + width);
  }
}

}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(moments_of);
HWY_EXPORT(tail_moments_of);
HWY_EXPORT(logs_of);

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
  if (count < 2) return 0;
  const double sum = folded(lanes.sum), n = static_cast<double>(count);
  return std::max(0.0, folded(lanes.squares) - sum * sum / n) / (n - 1);
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
