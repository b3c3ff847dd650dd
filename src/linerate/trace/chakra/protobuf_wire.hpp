// Private: protobuf's wire format, by hand, because a trace needs a few fields only.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::trace {

/// Reads protobuf's wire format. Every read is checked. After a bad one ok() is false for good, and
/// reads give 0 or nothing, so that a caller may check once at the end.
///
/// A field is a tag (number * 8 + type) and a value. Type 0 is a varint, 1 and 5 are 8 and 4 bytes,
/// 2 is a length and so many bytes.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return !ok_ || at_ >= bytes_.size(); }
  std::size_t position() const { return at_; }

  /// Seven bits a byte, the lowest first; a set eighth bit says that more follow. 300 is ac 02.
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
  /// A length and so many bytes, as a view into the text.
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
