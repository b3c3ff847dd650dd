// Chakra execution traces, byte by byte: messages of Protocol buffers, each behind its length.
#pragma once

#include <cstdint>
#include <string>

namespace linerate::trace::chakra {

inline std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out + static_cast<char>(v);
}
inline std::string field(int number, std::uint64_t v) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(v);
}
inline std::string message(const std::string& s) { return varint(s.size()) + s; }
inline std::string field(int number, const std::string& s) {
  return varint((static_cast<std::uint64_t>(number) << 3) | 2) + message(s);
}
/// Its value stands in this field.
inline std::string attribute(const std::string& name, int value_field, std::uint64_t v) {
  return field(10, field(1, name) + field(value_field, v));
}
inline std::string attribute(const std::string& name, const std::string& v) {
  return field(10, field(1, name) + field(29, v));
}
inline std::string head(const std::string& version = "0.0.4") { return message(field(1, version)); }

/// A device collective of type `comm_type` in group "1", from `start` us.
inline std::string collective_node(std::uint64_t comm_type, std::uint64_t bytes,
                                   std::uint64_t start, std::uint64_t us) {
  return message(field(2, std::string("ncclKernel")) + field(3, 7) + field(6, start) +
                 field(7, us) + attribute("is_cpu_op", 27, 0) +
                 attribute("comm_type", 9, comm_type) + attribute("comm_size", 9, bytes) +
                 attribute("pg_name", std::string("1")) + attribute("seq_id", 9, ~0ull));
}

}  // namespace linerate::trace::chakra
