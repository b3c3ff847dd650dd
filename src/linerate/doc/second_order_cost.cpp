// Shapes of factors, and seconds of K-FAC's parts from shapes and measured rates. Work is counted
// in flops of matrix products; small parts are counted by elements.
#include <algorithm>
#include <cmath>
#include <string>

#include "linerate/core/error.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::doc {
namespace {

double cube(std::int64_t d) {
  const double x = static_cast<double>(d);
  return x * x * x;
}

double work_s(double flops, double flops_per_s) {
  return flops_per_s > 0 ? flops / flops_per_s : 0;
}

/// The first sample of at least so many rows.
template <typename Samples>
auto first_from(const Samples& samples, std::int64_t dim) {
  return std::find_if(samples.begin(), samples.end(), [&](const auto& s) { return s.dim >= dim; });
}

// Linear in d^3, the law of the inversion. An example: 1 ms at d = 100 and 9 ms at d = 200. A
// matrix of 150 takes 1 + 8 * (150^3 - 100^3) / (200^3 - 100^3) = 3.7 ms.
double between(const InverseSample& below, const InverseSample& above, std::int64_t dim) {
  const double share = (cube(dim) - cube(below.dim)) / (cube(above.dim) - cube(below.dim));
  return below.seconds + share * (above.seconds - below.seconds);
}

std::int64_t at_least_one(double n) { return std::max<std::int64_t>(1, std::llround(n)); }

/// A dimension whose elements become `factor` times as many. A dense factor has d (d + 1) / 2 of
/// them, so ten times the elements are about 3.2 times the dimension.
std::int64_t scaled_dimension(std::int64_t d, double factor, bool triangle) {
  if (d == 0) return 0;
  if (!triangle) return at_least_one(static_cast<double>(d) * factor);
  const double elements = static_cast<double>(triangle_elements(d)) * factor;
  return at_least_one((std::sqrt(1 + 8 * elements) - 1) / 2);  // d (d + 1) / 2 = elements
}

}  // namespace

BlockKind parse_block_kind(std::string_view name) {
  for (std::size_t i = 0; i < kBlockKindNames.size(); ++i)
    if (kBlockKindNames[i] == name) return static_cast<BlockKind>(i);
  throw UsageError("unknown kind of block \"" + std::string(name) +
                   "\"; known: kronecker embedding unit-wise");
}

std::int64_t largest_dimension(const Block& block) {
  std::int64_t largest = 0;
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    if (block.dense(side)) largest = std::max(largest, block.dimension(side));
  return largest;
}

std::int64_t packed_elements(const Block& block, FactorSide side) {
  if (block.dense(side)) return block.groups * triangle_elements(block.dimension(side));
  if (block.kind == BlockKind::embedding) return block.a;
  return side == FactorSide::a ? 0 : 3 * block.g;
}

std::int64_t eigen_elements(const Block& block, FactorSide side) {
  const std::int64_t d = block.dimension(side);
  return block.dense(side) ? block.groups * d * (d + 1) : packed_elements(block, side);
}

std::int64_t gradient_elements(const Block& block) {
  return block.kind == BlockKind::unit_wise ? 2 * block.g : block.groups * block.a * block.g;
}

Block scaled(Block block, double factor) {
  block.a = scaled_dimension(block.a, factor, block.dense(FactorSide::a));
  block.g = scaled_dimension(block.g, factor, block.dense(FactorSide::g));
  if (block.factor_a_s) *block.factor_a_s *= factor;
  if (block.factor_g_s) *block.factor_g_s *= factor;
  return block;
}

double SecondOrderCost::inverse_s(std::int64_t dim) const {
  if (inverses.empty()) return inverse_fixed_s + inverse_s_per_cube * cube(dim);
  const InverseSample& smallest = inverses.front();
  const InverseSample& largest = inverses.back();
  if (dim <= smallest.dim) return smallest.seconds;
  if (dim >= largest.dim) return largest.seconds * cube(dim) / cube(largest.dim);
  const auto above = first_from(inverses, dim);
  return between(above[-1], *above, dim);
}

double SecondOrderCost::together_share(std::int64_t dim) const {
  if (most_together(dim) == 1) return 1;
  const auto share_of = [](const BatchSample& s) { return s.together_s / s.one_by_one_s; };
  const auto above = first_from(batches, dim);
  if (above == batches.begin() || above->dim == dim) return share_of(*above);
  const BatchSample& below = above[-1];
  const double at =
      static_cast<double>(dim - below.dim) / static_cast<double>(above->dim - below.dim);
  return share_of(below) + at * (share_of(*above) - share_of(below));
}

int SecondOrderCost::most_together(std::int64_t dim) const {
  const auto above = first_from(batches, dim);
  return above == batches.end() ? 1 : above->count;
}

// A factor is the product of a matrix of `rows` rows and d columns with itself: 2 rows d^2 flops.
SecondOrderWork factor_work(const Block& block, FactorSide side) {
  const double groups = block.groups;
  const double rows = static_cast<double>(block.rows(side));
  const double d = static_cast<double>(block.dimension(side));
  // A diagonal only counts its rows, a 2x2 matrix a unit takes three products a row.
  const double flops = block.dense(side)       ? 2 * groups * rows * d * d
                       : side == FactorSide::a ? rows
                                               : 6 * rows * d;
  const double inputs =
      side == FactorSide::a && block.kind == BlockKind::embedding ? rows : groups * rows * d;
  return {flops, inputs, static_cast<double>(packed_elements(block, side))};
}

// G^-1 (gradient) A^-1 takes 2 a g (a + g) flops. By eigenvectors, the gradient goes into their
// basis and back, which is twice as much.
SecondOrderWork direction_work(const Block& block, bool by_eigen) {
  const double a = static_cast<double>(block.a), g = static_cast<double>(block.g);
  const double product = by_eigen ? 4 : 2;
  return {block.kind == BlockKind::kronecker   ? product * block.groups * a * g * (a + g)
          : block.kind == BlockKind::embedding ? product * a * g * g + a * g
                                               : 6 * g};
}

// The block's own time is that of the product. Packing and averaging come on top in any case.
double factor_s(const Block& block, FactorSide side, const std::optional<SecondOrderCost>& cost) {
  const SecondOrderWork work = factor_work(block, side);
  if (work.elements == 0) return 0;
  const double packing_s = cost ? work.elements * cost->factor_s_per_element : 0;
  if (const auto& own = block.factor_s(side)) return *own + packing_s;
  if (!cost) return 0;
  return cost->factor_fixed_s + work_s(work.flops, cost->factor_flops_per_s) +
         work.inputs * cost->factor_s_per_input + packing_s;
}

double inverse_s(const Block& block, FactorSide side, const std::optional<SecondOrderCost>& cost) {
  if (!cost || !block.dense(side)) return 0;
  return block.groups * cost->inverse_s(block.dimension(side));
}

double precondition_s(const Block& block, const std::optional<SecondOrderCost>& cost,
                      bool by_eigen) {
  if (!cost) return 0;
  return cost->precondition_fixed_s +
         work_s(direction_work(block, by_eigen).flops, cost->precondition_flops_per_s);
}

}  // namespace linerate::doc
