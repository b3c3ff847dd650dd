#include "linerate/trace/input/padded_text.hpp"

#include <fmt/format.h>

#include <cstring>

#include "linerate/core/error.hpp"
#include "linerate/core/large_pages.hpp"

namespace linerate::trace {

PaddedText::PaddedText(std::string_view content) {
  reserve(content.size());
  std::memcpy(data(), content.data(), content.size());
  resize(content.size());
}

void PaddedText::reserve(std::size_t capacity) {
  if (capacity <= capacity_ && data_) return;
  const std::size_t wanted = (capacity + kPadding + 4095) / 4096 * 4096;
  char* grown = static_cast<char*>(std::realloc(data_.get(), wanted));
  if (grown == nullptr)
    throw InputError(
        "memory",
        fmt::format("expected {} bytes of free memory, found less; free some or filter the trace",
                    wanted));
  (void)data_.release();
  data_.reset(grown);
  prefer_large_pages(grown, wanted);
  capacity_ = wanted - kPadding;
  std::memset(grown + size_, 0, kPadding);
}

void PaddedText::resize(std::size_t size) {
  reserve(size);
  size_ = size;
  std::memset(data_.get() + size, 0, kPadding);
}

}  // namespace linerate::trace
