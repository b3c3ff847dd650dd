// The largest magnitude, as the bits of a float, for all_finite().
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::compress {

/// The largest of the values' bits without sign as an integer, which orders magnitudes; 0 for none.
std::uint32_t largest_magnitude_bits(std::span<const float> values);

// Values to the points of an even grid and back: code[n] of 8 bits <-> base + code * unit.

/// Points base + code * unit, of a bucket of elements. unit 0: every code is 0.
struct Grid {
  double base = 0, unit = 0;
};
/// The grids of elements that follow each other: element i has number i / bucket.
struct Grids {
  const Grid* of_bucket;
  std::size_t bucket;
  int top;         // codes are 0..top; signed ones -top..top: the sign of v with the magnitude's
  bool is_signed;  // base is 0
};

/// How a value between two points goes to one of them. Nearest: halves go up. Stochastic: up with
/// the probability of its distance from the lower point. The random number is from the stream `key`
/// (cast.hpp), and `first` is v[0]'s number in it. v must not go beyond a block of the
/// stream.
struct Rounding {
  bool is_stochastic = false;
  std::uint64_t key = 0;
  std::uint64_t first = 0;
};

/// t = |v - base| / unit is rounded to f32 before it is rounded to a point: unbiased to 2^-24 of t.
void to_codes(std::span<const float> v, const Grids& grids, const Rounding& rounding,
              std::int8_t* codes);

/// out += or, with `subtracts`, -= base + code * unit, computed in f64 and rounded once.
void add_codes(const std::int8_t* codes, const Grids& grids, bool subtracts, std::span<float> out);

// gradient[n] (+ residual[n]) -> 16-bit floats[n], divided by the number of ranks before the cast.

/// out[i] = the f16 or bf16 next to gradient[i] * share, ties to even. `out` has 2 bytes an
/// element.
void narrow_scaled(std::span<const float> gradient, float share, DType half, std::byte* out);

/// The numbers with which v is sent in 16 bits.
struct HalfScale {
  float share;  // v is multiplied by it before the cast
  float back;   // 1 / share
  float limit;  // where v is cut off
};
/// With error feedback, in one pass: v = gradient + residual is cut off at +-limit and sent. The
/// rest, v - up(out) * back, stays in `residual`. Returns the largest magnitude of v.
float narrow_and_keep(std::span<const float> gradient, std::span<float> residual,
                      const HalfScale& scale, DType half, std::byte* out);

// Elements of a tensor that were picked: values with their indices, ascending.

/// The k-th largest magnitude of some values, as the bits of a float without its sign: comparing
/// those as integers orders magnitudes exactly, denormals included. The first `ties` values of
/// exactly this magnitude belong to the k largest.
struct Cut {
  std::uint32_t bits = 0;
  std::size_t ties = 0;
};

/// Memory that grows without being written to: select() fills it at the speed of memory.
class Selection {
 public:
  std::size_t size() const { return size_; }
  std::span<const float> values() const { return {values_.get(), size_}; }
  std::span<const std::uint32_t> indices() const { return {indices_.get(), size_}; }

  void clear() { size_ = 0; }
  void append(float value, std::uint32_t index);
  /// Keeps the values that the cut lets pass: larger magnitudes, and the first `ties` equal to it.
  void keep(Cut cut);
  /// Keeps magnitudes whose bits are at least `least`.
  void keep_at_least(std::uint32_t least);

  /// Room after the picked ones for `count` more and a vector that is stored whole.
  void reserve_more(std::size_t count);
  float* values_end() { return values_.get() + size_; }
  std::uint32_t* indices_end() { return indices_.get() + size_; }
  void grow(std::size_t count) { size_ += count; }

 private:
  std::unique_ptr<float[]> values_;
  std::unique_ptr<std::uint32_t[]> indices_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// The k largest magnitudes, exactly.

/// The end of the k largest magnitudes, 1 <= k <= values.size(). Three histograms of 11, 10 and 10
/// bits are made instead of a sort.
Cut cut_of_largest(std::span<const float> values, std::size_t k);

/// Makes v = gradient + residual and picks its k largest magnitudes, ties by lower index. They are
/// exactly k, with zeros among them if nothing else is left. Mostly this takes one pass over v, and
/// histograms of a few candidates. A sample chooses the candidates, so it decides on time alone,
/// never on the answer.
void add_and_select_largest(const Input& input, std::size_t k, Selection& out);
/// The same for a v that is there.
void select_largest(std::span<const float> v, std::size_t k, Selection& out);

// Products of a matrix with few vectors, as low-rank methods need them. M is [rows][columns] of
// f32, row-major. Factors lie transposed, [rank][rows] and [rank][columns], so that each of their
// vectors is contiguous. Sums have one order whatever the processor's vectors: f32 within blocks,
// double over blocks. Errors are those of a few dozen f32 additions, whatever the size.

struct MatrixView {
  const float* data;
  std::size_t rows, columns;
};

/// p[j][i] = sum over c of M[i][c] q[j][c]: M times each of q's vectors. `p_stride` elements lie
/// between p's vectors (rows of the whole matrix, if M is a strip of it).
class RightProduct {
 public:
  /// q[rank][columns].
  RightProduct(std::span<const float> q, std::size_t columns);
  void operator()(const MatrixView& m, float* p, std::size_t p_stride) const;

 private:
  std::size_t rank_, columns_, padded_;
  std::vector<float> q_;  // [rank][padded]: columns filled up with zeros to whole vectors
};

/// q[j][c] = sum over i of p[j][i] M[i][c]: M transposed times each of p's vectors. p[rank][rows].
/// `before(first, count)` comes just before elements [first, first + count) of M are read, each
/// once: what it writes to them is still in the cache.
using BeforeElements = std::function<void(std::size_t first, std::size_t count)>;
void left_product(const MatrixView& m, std::span<const float> p, std::span<float> q,
                  const BeforeElements& before = {});

/// out[i][c] = sum over j of p[j][i] q[j][c], j ascending. A result beyond the range of f32 becomes
/// the largest number there is. The projection of a matrix near that end may have one.
void write_product(std::span<const float> p, std::span<const float> q, std::size_t rows,
                   std::size_t columns, float* out);
/// m[i][c] -= the same, to the bit; of a strip of `rows` rows, whose p begins at p[j * p_stride].
void subtract_product(const float* p, std::size_t p_stride, std::span<const float> q,
                      std::size_t rows, std::size_t columns, float* m);

/// Sum of a[i] b[i].
double dot(std::span<const double> a, std::span<const double> b);
/// a[i] -= factor b[i].
void subtract_multiple(std::span<double> a, double factor, std::span<const double> b);

// Magnitudes as integers: the bits of a float without its sign. Their order is that of |x|,
// exactly, whatever the processor does with denormals.

inline constexpr std::uint32_t kMagnitude = 0x7fffffff;
/// Above every finite magnitude: selects nothing.
inline constexpr std::uint32_t kNoMagnitude = kMagnitude;

inline std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & kMagnitude;
}

/// Bits of the smallest float >= threshold, a finite number >= 0: |x| >= threshold is then
/// magnitude_bits(x) >= the answer.
inline std::uint32_t bits_at_least(double threshold) {
  if (threshold > static_cast<double>(std::numeric_limits<float>::max())) return kNoMagnitude;
  const auto nearest = static_cast<float>(threshold);
  const std::uint32_t bits = magnitude_bits(nearest);
  return static_cast<double>(nearest) < threshold ? bits + 1 : bits;
}
// Count, mean, variance and mean logarithm of a tensor's magnitudes, in double. Sums are kept in 32
// lanes: element i adds to lane i mod 32. This order does not depend on the width of the
// processor's vectors, so every machine gets the same bits.

inline constexpr std::size_t kMomentLanes = 32;

/// With divisor count - 1; 0 if fewer than two are counted.
inline double variance_of(double sum, double squares, double count) {
  return count < 2 ? 0 : std::max(0.0, squares - sum * sum / count) / (count - 1);
}

/// Moments of the magnitudes x = |v| > 0.
class Moments {
 public:
  /// Counts `part` in; all calls but the last with multiples of 32 elements, so that their cuts do
  /// not change the sums.
  void add(std::span<const float> part);

  std::uint64_t count() const { return count_; }
  double largest() const { return largest_; }
  double mean() const;
  double variance() const;
  /// The root of the sum of squares, v's 2-norm.
  double norm() const;

  struct Lanes {  // one number a lane, for the kernel
    alignas(64) std::array<double, kMomentLanes> sum{}, squares{};
  };

 private:
  Lanes lanes_;
  std::uint64_t count_ = 0;
  double largest_ = 0;
};

/// The moments of the magnitudes that reach a threshold, as their excess over the smallest of them.
struct TailFit {
  std::uint64_t count = 0;
  std::uint32_t smallest = kMagnitude, largest = 0;  // bits; of no use if count is 0
  double mean_excess = 0, variance = 0;
};
/// Of the magnitudes whose bits are at least `least` >= 1. Sums are of the excess over that
/// magnitude. In a tail that begins far from zero, they lose fewer digits than sums of x would.
TailFit tail_of(std::span<const float> v, std::uint32_t least);

/// The sum of ln x over x = |v| > 0, without a logarithm for each element. Exponents are added as
/// integers. Mantissas are multiplied, and one logarithm of the product is taken for each lane.
/// Example: 6, 0.5 and 5 are 1.5 * 4, 1 / 2 and 1.25 * 4. The mantissas' product is 1.875 and the
/// exponents' sum 3. So the answer is ln 1.875 + 3 ln 2 = ln 15.
class LogSum {
 public:
  /// As Moments::add().
  void add(std::span<const float> part);
  double sum() const;

  struct Lanes {
    alignas(64) std::array<double, kMomentLanes> product;
    alignas(64) std::array<std::uint64_t, kMomentLanes> exponent{};
    Lanes() { product.fill(1); }
  };

 private:
  void normalise();

  Lanes lanes_;
  std::uint64_t steps_ = 0;  // of a lane: each added a bias of 1023 to its exponent
};

// Codes of 1, 2, 4 or 8 bits: a byte each <-> packed, element 0 in the lowest bits of byte 0.

/// The lowest `bits` of codes[n] to ceil(n * bits / 8) bytes; unused bits of the last one are 0.
void pack_codes(const std::int8_t* codes, std::size_t n, int bits, std::byte* out);
/// Back to a byte each, with the sign of `bits` bits if `is_signed`.
void unpack_codes(const std::byte* in, std::size_t n, int bits, bool is_signed, std::int8_t* codes);

// Turns floats into neighbouring powers of two, at random so that the mean is the float, and back.
// Only integers are used: a float's bits are ordered as its magnitudes, and its exponent is a
// shift.

/// The wire of 9 bits: groups of 32 elements, with 4 bytes of signs and 32 of exponents. Exponents
/// are as f32 has them: 0 is zero, and e from 1 to 254 is 2^(e - 127). A last group of m elements
/// has ceil(m / 8) bytes of signs and m of exponents.
constexpr std::size_t power_bytes(std::size_t n) { return n + (n + 7) / 8; }

/// v = gradient, or with a residual gradient + residual, and v - sent stays there. The number of
/// gradient[0] in the stream `key` (cast.hpp) is `first`; no more than a block of it.
void to_powers(std::span<const float> gradient, std::span<float> residual, std::uint64_t key,
               std::uint64_t first, std::byte* out);
/// out[n] += the powers of `in`. False if one is none: e = 255.
bool add_powers(const std::byte* in, std::span<float> out);

/// The wire of 8 bits: the sign, and 7 bits c. 0 is zero, and c stands for 2^(top - 127 - 127 + c).
/// So `top` (1..254) is the exponent of c = 127, as f32 has it. A magnitude below the least power
/// goes to that power or to 0.
/// With a residual, v lies in its memory, and what is sent leaves it.
void to_short_powers(std::span<const float> v, std::span<float> residual, std::uint32_t top,
                     std::uint64_t key, std::uint64_t first, std::byte* out);
/// False if a code stands for no f32.
bool add_short_powers(const std::byte* in, std::uint32_t top, std::span<float> out);

// The first step of error feedback: v = gradient + residual, in the residual's memory.

/// v after add_residual(), or after a kernel that adds on its way: the residual's memory, or the
/// gradient if no residual is kept.
inline std::span<const float> corrected(const Input& input) {
  return input.residual.empty() ? input.gradient : std::span<const float>(input.residual);
}
/// Elements [first, first + count) of an array, or of an empty one, such as a residual that is not
/// kept.
template <class T>
std::span<T> part_if_any(std::span<T> all, std::size_t first, std::size_t count) {
  return all.empty() ? all : all.subspan(first, count);
}
/// residual += gradient, of elements [first, first + count). Nothing if no residual is kept.
void add_residual(const Input& input, std::size_t first, std::size_t count);
inline void add_residual(const Input& input) { add_residual(input, 0, input.gradient.size()); }

// Picks the elements of a tensor whose magnitude reaches a threshold, at the speed of memory. On
// the way it adds the residual, if that is still to be done.

/// Elements that passes over a tensor work on at a time if several follow each other: half a
/// first-level cache. A multiple of every kernel's lanes.
inline constexpr std::size_t kChunk = 4096;

/// Adds the residual, and calls take(part) with each chunk of v while it is in the cache.
template <class Take>
void add_and_take(const Input& input, Take&& take) {
  const std::span<const float> v = corrected(input);
  for (std::size_t i = 0; i < v.size(); i += kChunk) {
    const std::size_t count = std::min(kChunk, v.size() - i);
    add_residual(input, i, count);
    take(v.subspan(i, count));
  }
}

/// Appends to `out` the elements of v whose magnitude's bits (kernel/magnitude.hpp) are at least
/// `least`, in order; v[0] has index `first`. A value -0.0 is handed on as +0.0.
void select(std::span<const float> v, std::uint32_t least, std::size_t first, Selection& out);

/// add_residual() and select() in one pass. Picks nothing more once `out` holds more than `limit`:
/// then it returns false, and all of v is there nevertheless.
bool add_and_select(const Input& input, std::uint32_t least, std::size_t limit, Selection& out);

/// How many elements have a magnitude whose bits are at least `least`.
std::size_t count_at_least(std::span<const float> v, std::uint32_t least);

// Floats to one bit each and back, in words[ceil(n / 32)]. Bit j of word w is 1 if element 32 w + j
// is below zero, which -0.0 is not. Bits after the last element are 0.

constexpr std::size_t sign_bytes(std::size_t n) { return (n + 31) / 32 * 4; }

/// The rule for the two values of a block v[n], which its signs decode to, and the sums for it.
enum class LevelRule : std::uint8_t {
  none,              // no sums
  mean_magnitude,    // +-(sum |v|) / n: one level sent; first = sum of |v|
  root_mean_square,  // +-sqrt(sum v^2 / n): one level sent; first = sum of v^2
  /// Mean of v >= 0, mean of v < 0: two sent; 0 for a class without elements. first = sum of v >=
  /// 0, second = sum of v < 0, negatives = how many of these.
  mean_of_class,
};
/// Sums in f64, of 16 fixed lanes: the same bits on every machine.
struct SignSums {
  double first = 0, second = 0;
  std::int64_t negatives = 0;
};

/// Of v = gradient, or with a residual gradient + residual, which is left there. `words` has
/// sign_bytes(n) bytes, at any address.
SignSums pack_signs(std::span<const float> gradient, std::span<float> residual, LevelRule rule,
                    std::byte* words);

/// The two values that signs stand for.
struct SignLevels {
  float positive, negative;
};
/// out = levels, out += levels or out -= levels. `words` are those of out's elements.
enum class Unpack : std::uint8_t { set, add, subtract };
void unpack_signs(const std::byte* words, SignLevels levels, Unpack how, std::span<float> out);

/// Whether the bits after element n are 0, as they are sent.
bool has_clean_tail(const std::byte* words, std::size_t n);

// Statistics of values, which quantisers take before they choose a grid. Sums are in f64 over 16
// fixed lanes: the same bits on every machine.

/// out[b] of bucket b: elements [b * bucket, (b + 1) * bucket) of v, the last one shorter.
void sums_of_squares(std::span<const float> v, std::size_t bucket, double* out);

/// A zero is +0.
struct Range {
  float least, largest;
};
void ranges_of(std::span<const float> v, std::size_t bucket, Range* out);

struct Spread {
  double sum, squares;
  float largest;  // of |v|
};
Spread spread_of(std::span<const float> v);

// Strom 2015's wire form: two bits an element, -tau, 0 or +tau.

/// 16 codes fill a 32-bit word.
inline constexpr std::size_t kCodesPerWord = 16;
constexpr std::int64_t two_bit_bytes(std::int64_t elements) {
  constexpr auto a_word = static_cast<std::int64_t>(kCodesPerWord);
  return 4 * ((elements + a_word - 1) / a_word);
}

/// Writes ceil(n / 16) words of codes, element i in bits 2 (i mod 16). The code is 0 for v <= -tau,
/// 2 for v >= tau, else 1. Bits after the last element are zero. v = gradient + residual, and the
/// residual becomes v - (code - 1) tau. Example with tau = 1: a v of 2.5 sends 1 and leaves 1.5. If
/// the next gradient is 0, it sends 1 again and leaves .5.
void encode_two_bit(const Input& input, float tau, std::byte* words);
/// Whether all `elements` codes are 0, 1 or 2 and all bits after them zero.
bool is_two_bit(std::span<const std::byte> words, std::size_t elements);
/// out[i] += (code - 1) tau, of whole words' elements from the first on.
void add_two_bit(std::span<const std::byte> words, float tau, std::span<float> out);

}  // namespace linerate::compress
