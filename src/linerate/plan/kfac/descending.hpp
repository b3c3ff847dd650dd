// An order by value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::plan {

/// Indices, largest value first, ties by index.
template <typename Value>
std::vector<std::int32_t> descending(std::span<const Value> values) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return values[to_index(a)] > values[to_index(b)];
  });
  return order;
}

}  // namespace linerate::plan
