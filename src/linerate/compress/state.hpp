// What codecs keep for a checkpoint, as bytes: the method's name and the tensor's shape, then its
// numbers. Only the same method on the same shape reads them back.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

class StateWriter {
 public:
  StateWriter(std::string_view method, const Shape& shape);
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put(std::span<const float> values) { put_bytes(std::as_bytes(values)); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> bytes_;
};

/// Throws InputError for bytes of another method or shape, and for too few or too many.
class StateReader {
 public:
  StateReader(std::span<const std::byte> saved, std::string_view method, const Shape& shape);
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  void get(std::span<float> values) {
    if (values.empty()) return;  // memcpy wants an address even for nothing
    std::memcpy(values.data(), next(values.size_bytes()).data(), values.size_bytes());
  }
  /// A number that must lie in [least, most].
  template <class T>
  T get_within(T least, T most) {
    const T value = get<T>();
    if (!(value >= least && value <= most)) refuse("a number is out of range");
    return value;
  }
  void finish() const;

 private:
  std::span<const std::byte> next(std::size_t bytes);
  [[noreturn]] void refuse(std::string_view why) const;

  std::span<const std::byte> left_;
  std::string_view method_;
};

}  // namespace linerate::compress
