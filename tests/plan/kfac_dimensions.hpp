// Factors of published networks.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/doc/block.hpp"

namespace linerate::support {

using Dimensions = std::vector<std::int64_t>;

/// A and G of each layer in forward order.
struct FactorDimensions {
  Dimensions a, g;
};

inline void append(Dimensions& to, const Dimensions& group, int times = 1) {
  for (int i = 0; i < times; ++i) to.insert(to.end(), group.begin(), group.end());
}

/// 54 layers, the projection shortcut last in its block.
inline FactorDimensions resnet50_dimensions() {
  FactorDimensions d;
  append(d.a, {147});
  append(d.a, {64, 576, 64, 64}), append(d.a, {256, 576, 64}, 2);
  append(d.a, {256, 1152, 128, 256}), append(d.a, {512, 1152, 128}, 3);
  append(d.a, {512, 2304, 256, 512}), append(d.a, {1024, 2304, 256}, 5);
  append(d.a, {1024, 4608, 512, 1024}), append(d.a, {2048, 4608, 512}, 2);
  append(d.a, {2049});
  append(d.g, {64});
  append(d.g, {64, 64, 256, 256}), append(d.g, {64, 64, 256}, 2);
  append(d.g, {128, 128, 512, 512}), append(d.g, {128, 128, 512}, 3);
  append(d.g, {256, 256, 1024, 1024}), append(d.g, {256, 256, 1024}, 5);
  append(d.g, {512, 512, 2048, 2048}), append(d.g, {512, 512, 2048}, 2);
  append(d.g, {1000});
  return d;
}

/// 201 layers.
inline FactorDimensions densenet201_dimensions() {
  FactorDimensions d{{147}, {64}};
  std::int64_t channels = 64;
  const int layers[] = {6, 12, 48, 32};
  for (int block = 0; block < 4; ++block) {
    for (int l = 0; l < layers[block]; ++l) {
      append(d.a, {channels, 1152}), append(d.g, {128, 32});
      channels += 32;
    }
    if (block == 3) break;
    append(d.a, {channels}), append(d.g, {channels / 2});
    channels /= 2;
  }
  append(d.a, {1921}), append(d.g, {1000});
  return d;
}

/// All A, then all G.
inline Dimensions all_factors(const FactorDimensions& d) {
  Dimensions all = d.a;
  append(all, d.g);
  return all;
}

}  // namespace linerate::support
