#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>

namespace linerate {

/// A count or an id of a document (signed there, and at least 0) as an index into a container.
constexpr std::size_t to_index(std::integral auto value) {
  assert(value >= 0);
  return static_cast<std::size_t>(value);
}

}  // namespace linerate
