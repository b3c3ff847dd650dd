// A cost curve as straight pieces, by which a search over sizes can prune.
#pragma once

#include <vector>

#include "linerate/cost/cost_curve.hpp"

namespace linerate::cost {

/// T(S) = alpha + beta S for from_bytes < S <= to_bytes; the first one from 0 on.
struct AffinePiece {
  double from_bytes = 0, to_bytes = 0;
  double alpha_s = 0, beta_s_per_byte = 0;

  double seconds(double bytes) const { return alpha_s + beta_s_per_byte * bytes; }
};

/// Ascending pieces without gaps, from 0 to `most` bytes; at least one. Between the sizes at which
/// the curve may jump (CostCurve::joints) it is a least or a largest of straight lines. Its bends
/// are found where the tangents of both ends meet.
std::vector<AffinePiece> affine_pieces(const CostCurve& curve, double most);

}  // namespace linerate::cost
