// What K-FAC's work costs on one rank: a part of the Cluster.
// Thread safety: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/block.hpp"

namespace linerate::doc {

/// A measured inversion of one dim x dim matrix.
struct InverseSample {
  std::int64_t dim = 0;  // rows of the matrix
  double seconds = 0;    // to invert it
};

/// Measured inversions of some dim x dim matrices: one after the other, and in one call.
struct BatchSample {
  std::int64_t dim = 0;     // rows of a matrix
  int count = 0;            // of matrices
  double one_by_one_s = 0;  // to invert all of them
  double together_s = 0;    // the same
};

/// A factor, or a layer's direction: what its seconds are made of.
struct SecondOrderWork {
  double flops = 0;                 // of its matrix products
  double inputs = 0, elements = 0;  // of a factor: its rows x d matrix, what it takes in a message
  double seconds = 0;               // if measured
};

/// Measured on one rank, for calibrate to fit.
struct SecondOrderSamples {
  std::vector<InverseSample> inverses;               // ascending dims
  std::vector<SecondOrderWork> factors, directions;  // with their seconds
  std::vector<BatchSample> batches;                  // ascending dims; empty: not measured
};

/// Rates of 0 are free. Flops count full products as all peers compute them: a symmetric product
/// that does half the work has twice the rate.
struct SecondOrderCost {
  // One matrix: fixed + d^3 * per_cube, or by the samples if any are given.
  double inverse_fixed_s = 0, inverse_s_per_cube = 0;
  std::vector<InverseSample> inverses{};  // ascending dims
  // One factor of one layer: fixed + 2 rows d^2 / rate. Patches and scaling go by element of the
  // rows x d matrix, averaging and packing by element of the factor.
  double factor_fixed_s = 0, factor_flops_per_s = 0;
  double factor_s_per_input = 0, factor_s_per_element = 0;  // by element of matrix and factor
  // One layer: fixed + 2 a g (a + g) / rate.
  double precondition_fixed_s = 0, precondition_flops_per_s = 0;
  std::vector<BatchSample> batches{};  // ascending dims
  std::string device{};  // where tensors lay: "cuda"; empty: on processors, or unknown

  /// Seconds for one dim x dim matrix. Samples are joined linearly in d^3. Beyond the largest the
  /// time grows as d^3, below the smallest it stays.
  double inverse_s(std::int64_t dim) const;
  /// The time of a matrix that is inverted with others in one call, as a share of inverse_s(dim).
  /// Measured shares are joined linearly in d. Below the smallest the share stays. Beyond the
  /// largest it is 1, as if none was measured.
  double together_share(std::int64_t dim) const;
  /// How many matrices of this size one call takes at most: as many as were measured, 1 if none.
  int most_together(std::int64_t dim) const;
};

/// What one factor of a block takes on one rank.
[[nodiscard]] SecondOrderWork factor_work(const Block&, FactorSide);
/// By inverses, or into the eigenvectors' basis and back, which takes each product of matrices
/// twice.
[[nodiscard]] SecondOrderWork direction_work(const Block&, bool by_eigen = false);

/// Seconds to compute, pack and average one factor of a block on one rank. If the block has a time
/// of its own, that is the time to compute the factor. 0 if nothing is known or there is no such
/// factor.
[[nodiscard]] double factor_s(const Block&, FactorSide, const std::optional<SecondOrderCost>&);
/// Seconds to invert one factor of a block, with all its groups. Diagonals and 2x2 matrices are
/// free, because their inverses are taken while preconditioning.
[[nodiscard]] double inverse_s(const Block&, FactorSide, const std::optional<SecondOrderCost>&);
/// Seconds to turn the block's gradient into its direction.
[[nodiscard]] double precondition_s(const Block&, const std::optional<SecondOrderCost>&,
                                    bool by_eigen = false);

}  // namespace linerate::doc
