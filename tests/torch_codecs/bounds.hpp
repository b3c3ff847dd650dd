// How far codecs over tensors may be from the native ones, and the shapes on which they are tried.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::torch_codecs {

inline const std::vector<compress::Shape> kShapesOfJobs = {
    {2, 1},    {3, 3},     {31, 1},   {33, 1},    {100, 10},   {513, 3},
    {1009, 1}, {4096, 64}, {5003, 1}, {9000, 90}, {33000, 30},
};

/// Of the largest |gradient| of the step, beginning with the same state. Not named here: nothing,
/// in any bit.
inline double bound_of(const std::string& strategy) {
  static const std::map<std::string, double> bounds = {
      // Levels are sums in f64, rounded to f32: an ulp of a level.
      {"efsignsgd", 0x1p-23},
      {"onebit", 0x1p-23},
      {"onebit-adam", 0x1p-23},
      // Factors: sums of f32 products in the order of a device.
      {"powersgd", 0x1p-15},
      {"acpsgd", 0x1p-15},
  };
  const auto found = bounds.find(doc::parse_component(strategy).name);
  return found == bounds.end() ? 0 : found->second;
}

}  // namespace linerate::torch_codecs
