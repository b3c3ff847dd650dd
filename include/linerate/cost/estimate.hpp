// A predicted duration with its uncertainty: what every cost model answers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "linerate/doc/workload.hpp"

namespace linerate::cost {

/// Seconds, with a 90 % interval. `extrapolated`: outside the sizes or the rank count that were
/// measured.
struct Estimate {
  double seconds = 0;         // predicted
  double low = 0;             // end of the interval
  double high = 0;            // the other end
  bool extrapolated = false;  // beyond what was measured
};

// What costs of all-reduces assume unless told.

/// A value of CostOptions::all_reduce: the shortest of ring and double tree for each size, as
/// NCCL's tuner chooses by its own model (src/graph/tuning.cc). Reduce-scatter and all-gather are
/// rings.
inline constexpr std::string_view kRingOrTree = "ring-or-tree";

// Time to add two vectors on the device, from a measured table: bytes of one vector -> seconds.
// Zhang et al. 2020 (arXiv 2006.10103), AddEst.

/// Linear interpolation in (bytes, seconds), clamped at both ends. The table need not be monotone
/// and is not repaired.
/// Thread safety: a value.
class AddTable {
 public:
  /// One straight piece: seconds = intercept + slope * bytes for bytes up to `to_bytes`.
  struct Piece {
    double to_bytes = 0;   // of one vector
    double intercept = 0;  // seconds
    double slope = 0;      // seconds per byte
  };

  /// An empty one.
  AddTable() = default;
  /// Throws UsageError unless the sizes ascend strictly.
  explicit AddTable(std::span<const doc::AddCost> table);

  /// Whether it has no row; seconds() must not be asked then.
  bool empty() const { return pieces_.empty(); }
  /// To add two vectors of so many bytes each.
  double seconds(double bytes) const {
    const Piece* p = pieces_.data();
    while (bytes > p->to_bytes) ++p;  // the last piece reaches to infinity
    return p->intercept + p->slope * bytes;
  }
  /// Ascending; the first and the last are flat, the last has no end.
  std::span<const Piece> pieces() const { return pieces_; }

 private:
  std::vector<Piece> pieces_;
};

}  // namespace linerate::cost
