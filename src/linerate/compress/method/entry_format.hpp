// Payloads of entries (sparse_payload.hpp), for every back end: how many there are of a tensor.
#pragma once

#include <cstdint>
#include <string_view>

namespace linerate::compress {

struct EntryFormat {
  std::string_view method;
  double density = 1;
  /// Entries of a tensor of so many elements; the most there can be if a payload is_counted.
  std::int64_t (*most)(double density, std::int64_t elements);
  bool is_counted = false;  // a payload begins with their number
  bool may_be_all = false;  // kAllValues may be in its place: then all values follow

  std::int64_t most_of(std::int64_t elements) const { return most(density, elements); }
};

}  // namespace linerate::compress
