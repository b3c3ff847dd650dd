// Elements of a tensor that were picked: values with their indices, ascending.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace linerate::compress {

/// The k-th largest magnitude of some values, as the bits of a float without its sign: comparing
/// those as integers orders magnitudes exactly, denormals included. The first `ties` values of
/// exactly this magnitude belong to the k largest.
struct Cut {
  std::uint32_t bits = 0;
  std::size_t ties = 0;
};

/// Memory that grows without being written to: select() fills it at the speed of memory.
class Selection {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const float> values() const { return {values_.get(), size_}; }
  std::span<const std::uint32_t> indices() const { return {indices_.get(), size_}; }

  void clear() { size_ = 0; }
  void append(float value, std::uint32_t index);
  /// Keeps [first, first + count) of what is picked.
  void keep_run(std::size_t first, std::size_t count);
  /// Keeps the values that the cut lets pass: larger magnitudes, and the first `ties` equal to it.
  void keep(Cut cut);
  /// Keeps magnitudes whose bits are at least `least`.
  void keep_at_least(std::uint32_t least);

  /// Room after the picked ones for `count` more and a vector that is stored whole.
  void reserve_more(std::size_t count);
  float* values_end() { return values_.get() + size_; }
  std::uint32_t* indices_end() { return indices_.get() + size_; }
  void grow(std::size_t count) { size_ += count; }

 private:
  std::unique_ptr<float[]> values_;
  std::unique_ptr<std::uint32_t[]> indices_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace linerate::compress
