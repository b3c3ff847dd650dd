// Selection by a threshold, and what is picked. Compiled once per instruction set, picked at run
// time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/select.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>
// clang-format on

#include <algorithm>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/index.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Picked values and indices go to arrays with room for all of them and a vector more.

using Floats = hn::CappedTag<float, 16>;  // Selection keeps room for one such vector
using Integers = hn::RebindToSigned<Floats>;

/// From element `done` on, one at a time: the same definition as the vectors' below.
template <bool kAdd>
std::size_t select_rest(const float* gradient, float* sums, const float* v, std::size_t done,
                        std::size_t n, std::uint32_t least, std::uint32_t first, float* values,
                        std::uint32_t* indices, std::size_t count) {
  for (std::size_t i = done; i < n; ++i) {
    float x = v[i];
    if constexpr (kAdd) sums[i] = x = x + gradient[i];
    if (magnitude_bits(x) < least) continue;
    values[count] = x + 0.0f;
    indices[count++] = first + static_cast<std::uint32_t>(i);
  }
  return count;
}

/// Picks from vectors. The picked lanes are moved together in a register, and the whole vector is
/// stored at the end of the list. The next store begins after the picked ones and overwrites the
/// rest. So the list needs room for one more vector. Example with four lanes: of 7, 1, 9 and 2 two
/// reach a threshold of 5. 7, 9 and two leftovers are stored, and the list grows by 2.
///
/// A compress to memory would need no room, but it is microcoded on Zen 4 and three times as slow.
/// There is no branch for a vector without picks: at 1 % it would be guessed wrong in every seventh
/// vector.
template <bool kAdd>
std::size_t select_all(const float* gradient, float* sums, const float* v, std::size_t n,
                       std::uint32_t least, std::uint32_t first, float* values,
                       std::uint32_t* indices) {
  const Floats d;
  const Integers di;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(di, static_cast<std::int32_t>(least) - 1);
  const auto magnitude = hn::Set(di, static_cast<std::int32_t>(kMagnitude));
  const auto step = hn::Set(di, static_cast<std::int32_t>(lanes));
  auto index = hn::Iota(di, static_cast<std::int32_t>(first));
  auto* places = reinterpret_cast<std::int32_t*>(indices);
  std::size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto x = hn::LoadU(d, v + i);
    if constexpr (kAdd) {
      x = hn::Add(x, hn::LoadU(d, gradient + i));
      hn::StoreU(x, d, sums + i);
    }
    const auto keep = hn::Gt(hn::And(hn::BitCast(di, x), magnitude), below);
    const auto value = hn::BitCast(di, hn::Add(x, hn::Zero(d)));  // -0.0 + 0.0 is +0.0
    hn::StoreU(hn::BitCast(d, hn::Compress(value, keep)), d, values + count);
    hn::StoreU(hn::Compress(index, keep), di, places + count);
    count += hn::CountTrue(di, keep);
    index = hn::Add(index, step);
  }
  return select_rest<kAdd>(gradient, sums, v, i, n, least, first, values, indices, count);
}

std::size_t select_of(const float* v, std::size_t n, std::uint32_t least, std::uint32_t first,
                      float* values, std::uint32_t* indices) {
  return select_all<false>(nullptr, nullptr, v, n, least, first, values, indices);
}

std::size_t select_of_sum(const float* gradient, float* residual, std::size_t n,
                          std::uint32_t least, std::uint32_t first, float* values,
                          std::uint32_t* indices) {
  return select_all<true>(gradient, residual, residual, n, least, first, values, indices);
}

std::size_t count_vectors(const float* v, std::size_t n, std::uint32_t least) {
  const Floats d;
  const Integers di;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(di, static_cast<std::int32_t>(least) - 1);
  const auto magnitude = hn::Set(di, static_cast<std::int32_t>(kMagnitude));
  std::size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::And(hn::BitCast(di, hn::LoadU(d, v + i)), magnitude);
    count += hn::CountTrue(di, hn::Gt(bits, below));
  }
  for (; i < n; ++i) count += magnitude_bits(v[i]) >= least;
  return count;
}

void add_vectors(const float* gradient, float* residual, std::size_t n) {
  const hn::CappedTag<float, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, gradient + i)), d, residual + i);
  for (; i < n; ++i) residual[i] += gradient[i];
}

/// As select_all(), from a list to itself. A store never overtakes the reads, because the list only
/// shrinks.
std::size_t filter_of(float* values, std::uint32_t* indices, std::size_t n, std::uint32_t least) {
  const Floats d;
  const Integers di;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(di, static_cast<std::int32_t>(least) - 1);
  const auto magnitude = hn::Set(di, static_cast<std::int32_t>(kMagnitude));
  auto* places = reinterpret_cast<std::int32_t*>(indices);
  std::size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto value = hn::BitCast(di, hn::LoadU(d, values + i));
    const auto place = hn::LoadU(di, places + i);
    const auto keep = hn::Gt(hn::And(value, magnitude), below);
    hn::StoreU(hn::BitCast(d, hn::Compress(value, keep)), d, values + count);
    hn::StoreU(hn::Compress(place, keep), di, places + count);
    count += hn::CountTrue(di, keep);
  }
  for (; i < n; ++i) {
    const std::size_t kept = magnitude_bits(values[i]) >= least;
    values[count] = values[i];
    indices[count] = indices[i];
    count += kept;
  }
  return count;
}

}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(select_of);
HWY_EXPORT(select_of_sum);
HWY_EXPORT(count_vectors);
HWY_EXPORT(filter_of);
HWY_EXPORT(add_vectors);

void add_residual(const Input& input, std::size_t first, std::size_t count) {
  if (input.residual.empty()) return;
  HWY_DYNAMIC_DISPATCH(add_vectors)
  (input.gradient.data() + first, input.residual.data() + first, count);
}

// A chunk at a time, as the room for all of v would be twice v.
void select(std::span<const float> v, std::uint32_t least, std::size_t first, Selection& out) {
  for (std::size_t i = 0; i < v.size(); i += kChunk) {
    const std::size_t count = std::min(kChunk, v.size() - i);
    out.reserve_more(count);
    out.grow(HWY_DYNAMIC_DISPATCH(select_of)(v.data() + i, count, least,
                                             static_cast<std::uint32_t>(first + i),
                                             out.values_end(), out.indices_end()));
  }
}

/// Goes on adding the residual when the limit is passed, because the caller then chooses in another
/// way, from all of v.
bool add_and_select(const Input& input, std::uint32_t least, std::size_t limit, Selection& out) {
  const std::size_t n = input.gradient.size();
  for (std::size_t i = 0; i < n; i += kChunk) {
    const std::size_t count = std::min(kChunk, n - i);
    if (out.size() > limit) {
      add_residual(input, i, n - i);
      break;
    }
    if (input.residual.empty()) {
      select(input.gradient.subspan(i, count), least, i, out);
      continue;
    }
    out.reserve_more(count);
    out.grow(HWY_DYNAMIC_DISPATCH(select_of_sum)(
        input.gradient.data() + i, input.residual.data() + i, count, least,
        static_cast<std::uint32_t>(i), out.values_end(), out.indices_end()));
  }
  return out.size() <= limit;
}

void Selection::keep_at_least(std::uint32_t least) {
  size_ = HWY_DYNAMIC_DISPATCH(filter_of)(values_.get(), indices_.get(), size_, least);
}

std::size_t count_at_least(std::span<const float> v, std::uint32_t least) {
  return HWY_DYNAMIC_DISPATCH(count_vectors)(v.data(), v.size(), least);
}

namespace {

constexpr std::size_t kWidestStore = 16;  // elements

}  // namespace

void Selection::reserve_more(std::size_t count) {
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

}  // namespace linerate::compress
#endif  // HWY_ONCE
