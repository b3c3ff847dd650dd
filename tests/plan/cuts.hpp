// Every way to cut a row of things into groups: what brute force searches.
#pragma once

#include <cstdint>
#include <vector>

namespace linerate::support {

/// The ends of the groups of each way, `count` last; all in one group comes first.
inline std::vector<std::vector<std::int32_t>> every_cut(std::size_t count) {
  std::vector<std::vector<std::int32_t>> all(std::size_t{1} << (count - 1));
  for (std::size_t cuts = 0; cuts < all.size(); ++cuts) {
    for (std::size_t l = 1; l < count; ++l)
      if (cuts >> (l - 1) & 1) all[cuts].push_back(static_cast<std::int32_t>(l));
    all[cuts].push_back(static_cast<std::int32_t>(count));
  }
  return all;
}

}  // namespace linerate::support
