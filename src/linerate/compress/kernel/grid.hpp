// Values to the points of an even grid and back: code[n] of 8 bits <-> base + code * unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace linerate::compress {

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
/// (rounding_bits.hpp), and `first` is v[0]'s number in it. v must not go beyond a block of the
/// stream.
struct Rounding {
  bool is_stochastic = false;
  std::uint64_t key = 0;
  std::uint64_t first = 0;
};

/// t = |v - base| / unit is rounded to f32 before it is rounded to a point: unbiased to 2^-24 of t.
void to_codes(std::span<const float> v, const Grids& grids, const Rounding& rounding,
              std::int8_t* codes);

/// out += or -= base + code * unit, computed in f64 and rounded once.
void add_codes(const std::int8_t* codes, const Grids& grids, std::span<float> out);
void subtract_codes(const std::int8_t* codes, const Grids& grids, std::span<float> out);

}  // namespace linerate::compress
