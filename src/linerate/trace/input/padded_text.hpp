// Text in memory as simdjson wants it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace linerate::trace {

/// Text followed by the zeroed bytes that simdjson may read past its end. It can be written,
/// because damaged JSON is mended in place. Memory grows by realloc, which moves pages of large
/// texts instead of bytes.
class PaddedText {
 public:
  static constexpr std::size_t kPadding = 64;

  PaddedText() = default;
  explicit PaddedText(std::size_t capacity) { reserve(capacity); }
  explicit PaddedText(std::string_view content);

  /// Keeps the content; the padding after it becomes zero. Throws InputError when memory is short.
  void reserve(std::size_t capacity);
  void resize(std::size_t size);
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  std::string_view view() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace linerate::trace
