// Replaces the kernels in builds without Highway: such a linerate plans, predicts and explains, and
// compresses nothing.
#include "linerate/compress/cast.hpp"
#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/all_finite.hpp"
#include "linerate/compress/kernel/grid.hpp"
#include "linerate/compress/kernel/half.hpp"
#include "linerate/compress/kernel/low_rank.hpp"
#include "linerate/compress/kernel/moments.hpp"
#include "linerate/compress/kernel/powers.hpp"
#include "linerate/compress/kernel/residual.hpp"
#include "linerate/compress/kernel/select.hpp"
#include "linerate/compress/kernel/signs.hpp"
#include "linerate/compress/kernel/statistics.hpp"
#include "linerate/compress/kernel/two_bit.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

[[noreturn]] void refuse() {
  throw UsageError(
      "this linerate was built without Highway and runs no compressor: install libhwy-dev "
      "(tools/setup) and build it again");
}

}  // namespace

bool can_cast(DType, DType) { refuse(); }
void cast(const void*, DType, void*, DType, std::size_t) { refuse(); }

std::uint32_t largest_magnitude_bits(std::span<const float>) { refuse(); }
bool all_finite(std::span<const float>) { refuse(); }
void Selection::keep_at_least(std::uint32_t) { refuse(); }

void to_codes(std::span<const float>, const Grids&, const Rounding&, std::int8_t*) { refuse(); }
void add_codes(const std::int8_t*, const Grids&, std::span<float>) { refuse(); }
void subtract_codes(const std::int8_t*, const Grids&, std::span<float>) { refuse(); }

void narrow_scaled(std::span<const float>, float, DType, std::byte*) { refuse(); }
float narrow_scaled(std::span<const float>, std::span<float>, const HalfScale&, DType, std::byte*) {
  refuse();
}
void widen(const std::byte*, DType, std::span<float>) { refuse(); }

RightProduct::RightProduct(std::span<const float>, std::size_t)
    : rank_(0), columns_(0), padded_(0) {
  refuse();
}
void RightProduct::operator()(const MatrixView&, float*, std::size_t) const { refuse(); }
void left_product(const MatrixView&, std::span<const float>, std::span<float>,
                  const BeforeElements&) {
  refuse();
}
void write_product(std::span<const float>, std::span<const float>, std::size_t, std::size_t,
                   float*) {
  refuse();
}
void subtract_product(const float*, std::size_t, std::span<const float>, std::size_t, std::size_t,
                      float*) {
  refuse();
}
double dot(std::span<const double>, std::span<const double>) { refuse(); }
void subtract_multiple(std::span<double>, double, std::span<const double>) { refuse(); }

void Moments::add(std::span<const float>) { refuse(); }
double Moments::mean() const { refuse(); }
double Moments::variance() const { refuse(); }
double Moments::norm() const { refuse(); }
TailMoments::TailMoments(std::uint32_t) : least_(0) { refuse(); }
void TailMoments::add(std::span<const float>) { refuse(); }
double TailMoments::mean_excess() const { refuse(); }
double TailMoments::variance() const { refuse(); }
void LogSum::add(std::span<const float>) { refuse(); }
double LogSum::sum() const { refuse(); }

void to_powers(std::span<const float>, std::span<float>, std::uint64_t, std::uint64_t, std::byte*) {
  refuse();
}
bool add_powers(const std::byte*, std::span<float>) { refuse(); }
void to_short_powers(std::span<const float>, std::uint32_t, std::uint64_t, std::uint64_t,
                     std::byte*) {
  refuse();
}
void to_short_powers_and_keep(std::span<float>, std::uint32_t, std::uint64_t, std::uint64_t,
                              std::byte*) {
  refuse();
}
bool add_short_powers(const std::byte*, std::uint32_t, std::span<float>) { refuse(); }

void add_residual(const Input&, std::size_t, std::size_t) { refuse(); }

void select(std::span<const float>, std::uint32_t, std::size_t, Selection&) { refuse(); }
bool add_and_select(const Input&, std::uint32_t, std::size_t, Selection&) { refuse(); }
std::size_t count_at_least(std::span<const float>, std::uint32_t) { refuse(); }

SignSums pack_signs(std::span<const float>, SignSum, std::byte*) { refuse(); }
SignSums add_and_pack_signs(std::span<const float>, std::span<float>, SignSum, std::byte*) {
  refuse();
}
void set_signs(const std::byte*, SignLevels, std::span<float>) { refuse(); }
void add_signs(const std::byte*, SignLevels, std::span<float>) { refuse(); }
void subtract_signs(const std::byte*, SignLevels, std::span<float>) { refuse(); }
bool has_clean_tail(const std::byte*, std::size_t) { refuse(); }

void sums_of_squares(std::span<const float>, std::size_t, double*) { refuse(); }
void ranges_of(std::span<const float>, std::size_t, Range*) { refuse(); }
Spread spread_of(std::span<const float>) { refuse(); }

void encode_two_bit(const Input&, float, std::byte*) { refuse(); }
bool is_two_bit(std::span<const std::byte>, std::size_t) { refuse(); }
void add_two_bit(std::span<const std::byte>, float, std::span<float>) { refuse(); }

}  // namespace linerate::compress
