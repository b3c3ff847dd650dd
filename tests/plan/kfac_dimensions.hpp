// Factors of published networks; tests/models holds them to what is published.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "linerate/models/catalogue.hpp"

namespace linerate::support {

using Dimensions = std::vector<std::int64_t>;

/// A and G of each layer in forward order, the projection shortcut last in its block.
struct FactorDimensions {
  Dimensions a, g;
};

/// Of the convolutions and linear layers of a network of the catalogue.
inline FactorDimensions dimensions_of(std::string_view network) {
  FactorDimensions d;
  for (const doc::Block& b : models::blocks_of(models::describe(network), 0))
    if (b.kind == doc::BlockKind::kronecker) d.a.push_back(b.a), d.g.push_back(b.g);
  return d;
}

/// All A, then all G.
inline Dimensions all_factors(const FactorDimensions& d) {
  Dimensions all = d.a;
  all.insert(all.end(), d.g.begin(), d.g.end());
  return all;
}

}  // namespace linerate::support
