// What the conformance suite holds a compressor to, beside what all have in common.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
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

/// A value that is sent is one of two neighbours: `up` where the random number, or one half, says
/// so. Where that lies closer to the fraction than the codec's f32 is exact, both are right.
struct Neighbours {
  double lower, upper;
  bool up = false, both = false;
  double tolerance = 0;
  bool allows(double sent) const {
    const bool is_lower = std::abs(sent - lower) <= tolerance;
    const bool is_upper = std::abs(sent - upper) <= tolerance;
    return both ? is_lower || is_upper : (up ? is_upper : is_lower);
  }
};
/// A second implementation, in f64 and without kernels, of what a rank's payload of v decodes to.
/// It shares the random numbers with the codec, and how many entries a threshold let through.
using Sent = std::function<std::vector<Neighbours>(const std::vector<float>& v, const Keys& keys,
                                                   std::span<const std::byte> payload)>;

using Numbers = std::vector<double>;
/// A step of ranks as a second implementation sees it: what each rank gives, and its payload.
struct Given {
  Shape shape;
  const std::vector<std::vector<float>>& gradients;  // [rank][element]
  const std::vector<std::vector<float>>& residuals;  // of the step before
  std::vector<std::span<const std::byte>> payloads;  // [rank], of the first round
  const SavedState& before;                          // what rank 0's codec kept
  std::vector<Keys> keys;                            // [rank]
  std::uint64_t step;

  std::size_t elements() const { return static_cast<std::size_t>(shape.elements); }
  std::size_t ranks() const { return gradients.size(); }
  /// As the codec rounds it: what is selected, and which way a number is rounded, goes by that.
  std::vector<float> corrected(std::size_t rank) const {
    std::vector<float> v = gradients[rank];
    for (std::size_t i = 0; i < residuals[rank].size(); ++i) v[i] += residuals[rank][i];
    return v;
  }
};
/// What should come of it. NaN: rounding decides between two numbers that are both right.
struct Outcome {
  Numbers mean;
  std::vector<Numbers> kept;  // [rank]; empty: nothing that a residual would hold
};
/// Each rank's part decoded by itself: the mean of all, and what is left of each.
Outcome of_ranks(const Given& given, const std::function<Numbers(std::size_t rank)>& decoded);
/// A second implementation of whole steps, with what it remembers.
using Twin = std::function<Outcome(const Given&)>;

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
  /// Bytes for 1,000,003 elements, as the reference derives them; 0: not stated there.
  std::int64_t golden = 0;
  /// Options that are refused.
  std::vector<std::string> refuses = {};
  /// Unbiased: the error's square is at most so many times |v|^2 in the mean. 0: biased.
  double variance = 0;
  /// A second implementation of a rank's payload; of whole steps, where ranks or steps before
  /// matter. Null: the row of other options has one.
  Sent sent = nullptr;
  std::function<Twin()> twin = nullptr;
  /// Of the largest relative difference to it: a few dozen roundings of f32.
  double twin_bound = 1e-6;

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
std::vector<Expectation> all_expectations();

}  // namespace linerate::compress
