#include "linerate/compress/kernel/kernels.hpp"

#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::size_t kVector = 16;  // the widest store of select.cpp, in elements

}  // namespace

void Selection::reserve_more(std::size_t count) {
  const std::size_t needed = size_ + count + kVector;
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

void Selection::keep_run(std::size_t first, std::size_t count) {
  std::copy_n(values_.get() + first, count, values_.get());
  std::copy_n(indices_.get() + first, count, indices_.get());
  size_ = count;
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
