// Private: protobuf's wire format, by hand: a trace needs five fields of it.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::trace {

/// Reads protobuf's wire format; every read is checked, a bad one makes the reader fail for good.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return !ok_ || at_ >= bytes_.size(); }
  std::size_t position() const { return at_; }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ >= bytes_.size()) break;
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  std::string_view block() {
    const std::uint64_t n = varint();
    if (!ok_ || n > bytes_.size() - at_) return ok_ = false, std::string_view();
    const std::string_view block = bytes_.substr(at_, n);
    at_ += n;
    return block;
  }
  /// Field number and wire type of the next field.
  std::pair<std::uint64_t, int> tag() {
    const std::uint64_t t = varint();
    return {t >> 3, static_cast<int>(t & 7)};
  }
  /// Little-endian, 4 or 8 bytes.
  std::uint64_t fixed(int width) {
    std::uint64_t value = 0;
    if (to_index(width) > bytes_.size() - at_) return ok_ = false, 0;
    for (int i = 0; i < width; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[at_ + std::size_t(i)]))
               << (8 * i);
    at_ += to_index(width);
    return value;
  }
  void skip(int type) {
    switch (type) {
      case 0:
        varint();
        break;
      case 1:
        fixed(8);
        break;
      case 2:
        block();
        break;
      case 5:
        fixed(4);
        break;
      default:
        ok_ = false;
    }
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace linerate::trace
