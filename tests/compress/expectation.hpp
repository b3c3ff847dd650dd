// What the conformance suite holds a compressor to, beside what all have in common.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {

/// How v, what was sent and what is left go together after a step of one rank.
enum class Split : std::uint8_t {
  rounded,   // residual = v - sent, rounded once
  exact,     // an element is sent, bit for bit, or kept: one of the two is zero
  computed,  // sent is computed twice in different orders: within `split_tolerance`
  none,      // of something else than v: tests of its own
};

struct Expectation {
  std::string strategy;  // "qsgd(bits=4)"
  /// The bytes of each round by the formulas of the literature, whether or not they pay.
  std::function<std::vector<std::int64_t>(const Shape&)> bytes;
  /// The same of one phase: by default what `bytes` says. Empty: dense.
  std::function<std::vector<std::int64_t>(const Shape&, int phase)> bytes_in = {};
  /// Whether it compresses: by default where its payloads are smaller than the dense tensor.
  std::function<bool(const Shape&)> pays = {};
  Split split = Split::rounded;
  double split_tolerance = 0;  // of the largest |v|
  bool keeps_zero = true;      // zeros on all ranks decode to zeros
  /// Magnitudes above it may become infinite where no residual is kept.
  float largest = std::numeric_limits<float>::max();
  /// `bytes` of a sum are those of its largest steps: the size goes by the step's number.
  bool size_alternates = false;
  /// The share of descent's step size that it converges at (convergence_test.cpp).
  double descent = 1;
  /// Relative error of ranks' sums in the type that travels: conservation holds to it.
  double sum_error = 0;

  std::int64_t total(const Shape& shape) const {
    std::int64_t sum = 0;
    for (const std::int64_t round : bytes(shape)) sum += round;
    return sum;
  }
  bool compresses(const Shape& shape) const {
    if (pays) return pays(shape);
    return shape.elements > 0 && total(shape) < 4 * shape.elements;
  }
};

inline void PrintTo(const Expectation& e, std::ostream* out) { *out << e.strategy; }
/// As the parameter of a suite; its characters are those that a test's name may have.
inline std::string name_of_test(const testing::TestParamInfo<Expectation>& info) {
  std::string name = info.param.strategy;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

/// Each of a registered compressor with its defaults, or with options that make it another.
std::vector<Expectation> quantizer_expectations();
std::vector<Expectation> sparse_and_low_rank_expectations();
inline std::vector<Expectation> all_expectations() {
  std::vector<Expectation> all = quantizer_expectations();
  for (Expectation& e : sparse_and_low_rank_expectations()) all.push_back(std::move(e));
  return all;
}

}  // namespace linerate::compress
