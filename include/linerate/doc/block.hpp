// Block: a layer whose curvature a second-order method approximates by Kronecker factors.
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace linerate::doc {

/// What the factors of a layer look like (Martens & Grosse 2015; Grosse & Martens 2016 for
/// convolutions).
enum class BlockKind : std::uint8_t {
  kronecker,  // dense A and G
  embedding,  // A is diagonal: how often each row was asked for
  unit_wise   // norm layers: a symmetric 2x2 matrix a unit in place of G, no A
};
inline constexpr std::array<std::string_view, 3> kBlockKindNames = {"kronecker", "embedding",
                                                                    "unit-wise"};
[[nodiscard]] constexpr std::string_view name_of(BlockKind kind) {
  return kBlockKindNames[static_cast<std::size_t>(kind)];
}
/// Throws UsageError.
[[nodiscard]] BlockKind parse_block_kind(std::string_view name);

/// A: second moments of a layer's inputs; G: of the gradients of its outputs.
enum class FactorSide : std::uint8_t { a, g };
inline constexpr std::array<std::string_view, 2> kFactorSideNames = {"A", "G"};
[[nodiscard]] constexpr std::string_view name_of(FactorSide side) {
  return kFactorSideNames[static_cast<std::size_t>(side)];
}

/// F ~ G x A, `groups` pairs of them. A is a x a over rows_a rows of inputs, G is g x g over rows_g
/// rows of output gradients: rows are the samples of one rank and step times the positions that
/// share the weight.
struct Block {
  int layer = -1;  // index into Workload::layers; its gradients are those with this layer
  BlockKind kind = BlockKind::kronecker;             // what its factors look like
  std::int64_t a = 0;                                // of one group, bias included; unit_wise: 0
  std::int64_t g = 0;                                // of one group; unit_wise: units
  int groups = 1;                                    // pairs of factors
  std::int64_t rows_a = 0, rows_g = 0;               // 0: unknown
  std::optional<double> factor_a_s{}, factor_g_s{};  // one rank alone; absent: as the Cluster says

  /// Rows of one group's factor of this side.
  std::int64_t dimension(FactorSide side) const { return side == FactorSide::a ? a : g; }
  /// Rows that this side's factor is a mean over; 0: unknown.
  std::int64_t rows(FactorSide side) const { return side == FactorSide::a ? rows_a : rows_g; }
  /// Seconds to compute this side's factor; absent: as the Cluster says.
  const std::optional<double>& factor_s(FactorSide side) const {
    return side == FactorSide::a ? factor_a_s : factor_g_s;
  }
  /// Whether the factor of this side consists of matrices to invert.
  bool dense(FactorSide side) const {
    return kind == BlockKind::kronecker || (kind == BlockKind::embedding && side == FactorSide::g);
  }
};

/// Rows of the largest matrix to invert; 0: there is none.
[[nodiscard]] std::int64_t largest_dimension(const Block&);

/// d (d + 1) / 2: the upper triangle with its diagonal.
[[nodiscard]] constexpr std::int64_t triangle_elements(std::int64_t d) { return d * (d + 1) / 2; }
/// What the factor of this side takes in a message: packed triangles, a diagonal, or three elements
/// a unit.
[[nodiscard]] std::int64_t packed_elements(const Block&, FactorSide);
/// What an eigendecomposition of it takes: vectors d x d and values d of each matrix; other factors
/// stay as they are.
[[nodiscard]] std::int64_t eigen_elements(const Block&, FactorSide);
/// What the block preconditions: its layer's weight (and bias), or scale and shift of each unit.
[[nodiscard]] std::int64_t gradient_elements(const Block&);

/// The block of a layer `factor` times as large: packed elements and times, up to rounding; rows
/// stay.
[[nodiscard]] Block scaled(Block, double factor);

}  // namespace linerate::doc
