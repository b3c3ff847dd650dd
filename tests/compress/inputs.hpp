// Gradients that a compressor meets: noise, and every input at which one of the literature's
// implementations went wrong.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "linerate/core/random.hpp"

namespace linerate::compress {

/// Normal, mean 0, deviation 1 (Box and Muller 1958).
inline float normal(std::uint64_t key, std::uint64_t i) {
  const double radius = std::sqrt(-2 * std::log(1 - random_unit(key, 2 * i)));
  return static_cast<float>(radius * std::cos(2 * std::numbers::pi * random_unit(key, 2 * i + 1)));
}
inline std::vector<float> noise(std::size_t n, std::uint64_t key, float scale = 1) {
  std::vector<float> all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = scale * normal(key, i);
  return all;
}

/// Of each rank in a step: no two are alike.
template <class Step>
std::vector<std::vector<float>> noise_of_ranks(std::size_t n, int ranks, Step step) {
  std::vector<std::vector<float>> all;
  const auto of_step = static_cast<std::uint64_t>(ranks) * static_cast<std::uint64_t>(step);
  for (int r = 0; r < ranks; ++r) all.push_back(noise(n, of_step + static_cast<std::uint64_t>(r)));
  return all;
}

inline double largest_magnitude(const std::vector<float>& values) {
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}
inline double norm_of(const std::vector<float>& v) {
  double squares = 0;
  for (const float x : v) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

struct EdgeInput {
  std::string name;
  std::vector<float> values;
};

/// Every kind of the reference's list, n elements each. NaN and infinity are not among them: they
/// are found by all_finite() before encode().
inline std::vector<EdgeInput> edge_inputs(std::size_t n, std::uint64_t key) {
  std::vector<EdgeInput> all;
  const auto add = [&](const char* name, auto&& element) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = element(i);
    all.push_back({name, std::move(values)});
  };
  add("noise", [&](std::size_t i) { return normal(key, i); });
  add("zeros", [](std::size_t) { return 0.0f; });
  add("negative zeros", [](std::size_t) { return -0.0f; });
  add("zeros of both signs", [](std::size_t i) { return i % 3 ? 0.0f : -0.0f; });
  add("zeros among noise", [&](std::size_t i) { return i % 4 ? -0.0f : normal(key, i); });
  add("all equal", [](std::size_t) { return 0.3f; });
  add("all negative", [&](std::size_t i) { return -0.01f - std::abs(normal(key, i)); });
  add("equal magnitudes", [](std::size_t i) { return i % 3 ? 0.25f : -0.25f; });
  add("denormal", [](std::size_t i) {
    return (i % 2 ? -1.0f : 1.0f) * static_cast<float>(i % 100) *
           std::numeric_limits<float>::denorm_min();
  });
  add("1e30", [&](std::size_t i) { return 1e30f * normal(key, i); });
  add("1e-30", [&](std::size_t i) { return 1e-30f * normal(key, i); });
  add("one outlier", [&](std::size_t i) { return i == n / 2 ? -3e38f : normal(key, i); });
  add("both ends", [](std::size_t i) { return i % 2 ? 3e38f : -3e38f; });
  add("one element", [&](std::size_t i) { return i == n - 1 ? 2.5f : 0.0f; });
  return all;
}

}  // namespace linerate::compress
