#include "linerate/doc/block.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "linerate/core/error.hpp"

namespace linerate::doc {
namespace {

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

}  // namespace linerate::doc
