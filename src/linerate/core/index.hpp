#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace linerate {

/// A count or an id of a document (signed there, and at least 0), or an enumerator, as an index
/// into a container.
template <typename T>
requires std::integral<T> || std::is_enum_v<T>
constexpr std::size_t to_index(T value) {
  if constexpr (std::is_signed_v<T>) assert(value >= 0);
  return static_cast<std::size_t>(value);
}

}  // namespace linerate
